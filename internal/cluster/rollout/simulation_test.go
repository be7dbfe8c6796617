package rollout_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/objects"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/machines"
)

// simulation is a fleet in virtual time, with two controllers that act at the same time. Everything in it
// follows from the seed.
type simulation struct {
	*memory
	rand        *rand.Rand
	machines    map[string]*machines.Machine
	controllers []*process
	decide      func(rollout.Fleet) rollout.Decision
	limits      map[string]*machines.Limit
	loads       map[string]*machines.Limit // of downloads
	targets     map[string]map[string]bool
	calm        bool // no more faults
	wrong       string
}

// process is a controller that runs, and stops between each two requests.
type process struct {
	*access
	resume func() (string, bool)
	stop   func()
	lag    int // percentage of objects whose newest state is not seen at a time
}

func newSimulation(seed uint64, decide func(rollout.Fleet) rollout.Decision) *simulation {
	s := &simulation{memory: newMemory(), rand: rand.New(rand.NewPCG(seed, 27)), machines: map[string]*machines.Machine{}, decide: decide,
		limits: map[string]*machines.Limit{}, loads: map[string]*machines.Limit{}, targets: map[string]map[string]bool{}}
	for _, pool := range []string{"master", "worker", "infra"} {
		s.addPool(pool, "rendered-"+pool+"-1")
		s.targets[pool] = map[string]bool{"rendered-" + pool + "-1": true}
	}
	for i := range 20 {
		s.join(fmt.Sprintf("n%02d", i), []string{"master", "infra", "infra"}[min(i/3, 2)], i < 9)
	}
	s.settings()
	s.memory.check, s.memory.given = s.checkLimits, s.checkGiven
	for i := range 2 {
		s.controllers = append(s.controllers, &process{access: s.memory.access(fmt.Sprintf("n%02d", i)), lag: s.rand.IntN(90)})
	}
	return s
}

// join adds a node; each that is not special is a plain worker.
func (s *simulation) join(name, pool string, special bool) {
	labels := map[string]string{role("worker"): "", "topology.kubernetes.io/zone": strconv.Itoa(s.rand.IntN(3))}
	config := "rendered-worker-1"
	if special {
		labels[role(pool)], config = "", "rendered-"+pool+"-1"
	}
	if pool == "master" && special {
		labels[role("control-plane")] = ""
	}
	s.addNode(name, config, labels)
	s.machines[name] = machines.New(name, s.memory, config, rand.New(rand.NewPCG(s.rand.Uint64(), 1)), 1)
}

// settings chooses how the pools are rolled out.
func (s *simulation) settings() {
	for _, pool := range s.order {
		s.changePool(pool, func(p *rollout.Pool) {
			percent := intstr.FromString(fmt.Sprintf("%d%%", 5+s.rand.IntN(40)))
			number := intstr.FromInt32(int32(s.rand.IntN(4)))
			p.MaxUnavailable, s.limits[pool] = &number, &machines.Limit{Number: number.IntValue()}
			if s.rand.IntN(2) == 0 {
				n, _ := strconv.Atoi(strings.TrimSuffix(percent.StrVal, "%"))
				p.MaxUnavailable, s.limits[pool] = &percent, &machines.Limit{Percent: n}
			}
			if pool == "master" {
				s.limits[pool] = &machines.Limit{Number: 1}
			}
			p.Spec = objects.PoolRolloutSpec{Canary: int32(s.rand.IntN(3)), StopAfter: int32(s.rand.IntN(4)), ReturnToLastGood: s.rand.IntN(2) == 0}
			p.Spec.ParallelDownloads, s.loads[pool] = s.parallel()
			p.Spec.Soak = v1.Duration{Duration: time.Duration(s.rand.IntN(30)) * time.Minute}
			if s.rand.IntN(4) == 0 && pool != "master" {
				p.Spec.After = []string{"master"}
			}
			if s.rand.IntN(4) == 0 {
				p.Spec.Window = "10:00-20:00 UTC"
			}
		})
	}
}

// parallel chooses how many nodes of a pool may download at a time: a number or a percentage.
func (s *simulation) parallel() (*intstr.IntOrString, *machines.Limit) {
	n := s.rand.IntN(5)
	v, l := intstr.FromInt32(int32(n)), &machines.Limit{Number: n}
	if n == 4 {
		v, l = intstr.FromString("20%"), &machines.Limit{Percent: 20}
	}
	return &v, l
}

func (s *simulation) fault(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = s.now.Format("15:04") + " " + fmt.Sprintf(format, args...)
	}
}

// checkLimits is the invariant: no pool has more disturbed nodes than it may, nor asks more than it may to download.
func (s *simulation) checkLimits(call string) {
	count, asked, size := map[string][]string{}, map[string][]string{}, map[string]int{}
	for name, c := range s.machines {
		n := s.memory.nodes[name]
		if n == nil {
			continue
		}
		pool := s.poolOf(n)
		if size[pool]++; c.Disturbed() {
			count[pool] = append(count[pool], name)
		} else if n.Annotations[api.Download] != "" {
			asked[pool] = append(asked[pool], name)
		}
	}
	for pool, l := range s.loads {
		wrong := l.Exceeded(pool, size[pool], asked[pool])
		if none := l.Number+l.Percent == 0; none && len(asked[pool]) > 0 {
			wrong = fmt.Sprintf("limit: %s of %s are asked, and none may be", asked[pool], pool)
		}
		if wrong != "" {
			s.fault("downloads: %s, after %s", wrong, call)
		}
	}
	for pool, l := range s.limits {
		if wrong := l.Exceeded(pool, size[pool], count[pool]); wrong != "" {
			s.fault("%s, after %s", wrong, call)
		}
	}
}

// checkGiven is the invariant of what is given, or to be downloaded: only what the pool has or had, and nothing is
// given to a node that an administrator has cordoned.
func (s *simulation) checkGiven(call string, n *rollout.Node, config string) {
	pool := s.poolOf(n)
	if !s.targets[pool][config] {
		s.fault("%s of %s is given %s", n.Name, pool, config)
	}
	if call == "give" && n.Cordoned && n.Annotations[api.CordonedFor] == "" {
		s.fault("%s is given %s although it is cordoned", n.Name, config)
	}
}

func (s *simulation) poolOf(n *rollout.Node) string {
	for _, pool := range []string{"master", "infra", "worker"} {
		if _, ok := n.Labels[role(pool)]; ok {
			return pool
		}
	}
	return ""
}

// step runs controllers and machines for one minute.
func (s *simulation) step() {
	s.now = s.now.Add(time.Minute)
	for _, name := range slices.Sorted(maps.Keys(s.machines)) {
		s.machines[name].Step()
	}
	if !s.calm {
		s.administrator()
	}
	s.checkLimits("a minute")
	for range 6 {
		p := s.controllers[s.rand.IntN(2)]
		if p.resume == nil {
			s.start(p)
		}
		if _, more := p.resume(); !more {
			p.resume = nil
		} else if !s.calm && s.rand.IntN(30) == 0 { // killed; its successor knows nothing
			p.stop()
			p.resume = nil
			p.relist()
		}
	}
}

// start begins a pass of a controller, with caches that are more or less old.
func (s *simulation) start(p *process) {
	if s.calm {
		p.relist()
	} else {
		p.refresh(func() bool { return s.rand.IntN(100) >= p.lag })
	}
	p.resume, p.stop = iter.Pull(func(yield func(string) bool) {
		alive := true
		p.pause = func(call string) bool {
			alive = alive && yield(call)
			return alive
		}
		_, _ = rollout.Controller{Cluster: p.access, Decide: s.decide}.Pass(context.Background())
	})
}

// administrator does what people do: other configurations, cordons, deletions, joins.
func (s *simulation) administrator() {
	names := slices.Sorted(maps.Keys(s.memory.nodes))
	name := names[s.rand.IntN(len(names))]
	n := s.memory.nodes[name]
	switch s.rand.IntN(150) {
	case 0, 1:
		s.release(s.order[s.rand.IntN(3)])
	case 2:
		if n.Annotations[api.CordonedFor] == "" {
			s.change(name, func(n *rollout.Node) { n.Cordoned = !n.Cordoned })
		}
	case 3:
		if s.poolOf(n) != "master" && len(names) > 12 {
			delete(s.memory.nodes, name)
			delete(s.machines, name)
		}
	case 4:
		if len(names) < 20 {
			s.join(fmt.Sprintf("n%02d", 20+s.rand.IntN(60)), "worker", false)
		}
	case 5:
		s.changePool("worker", func(p *rollout.Pool) { p.Paused, p.Version = !p.Paused, s.next() })
	}
}

// release gives a pool another configuration, or the first one again. Some do not work on some nodes.
func (s *simulation) release(pool string) {
	config := fmt.Sprintf("rendered-%s-%d", pool, 1+s.rand.IntN(4))
	if s.rand.IntN(3) == 0 {
		for _, name := range slices.Sorted(maps.Keys(s.machines)) {
			if c := s.machines[name]; config != "rendered-"+pool+"-1" && s.rand.IntN(6) == 0 {
				c.Fails(config)
			}
		}
	}
	s.targets[pool][config] = true
	s.changePool(pool, func(p *rollout.Pool) { p.Configuration.Name, p.Version = config, s.next() })
}

// run simulates faults, then their end, and returns what is wrong; "" if nothing is.
func (s *simulation) run(minutes int) string {
	for range minutes {
		if s.step(); s.wrong != "" {
			return s.wrong
		}
	}
	s.calm = true
	for _, c := range s.machines {
		c.Calm()
	}
	for _, pool := range s.order {
		s.changePool(pool, func(p *rollout.Pool) { p.Paused, p.Version, p.Spec.Window = false, s.next(), "" })
	}
	s.settle()
	if s.checkEnd(false); s.wrong != "" {
		return s.wrong
	}
	for _, name := range slices.Sorted(maps.Keys(s.machines)) { // somebody heals what is named
		s.machines[name].Retry()
		s.change(name, func(n *rollout.Node) { n.Cordoned = n.Annotations[api.CordonedFor] != "" })
	}
	for _, pool := range s.order { // a configuration that was given up is tried again
		s.changePool(pool, func(p *rollout.Pool) { p.Spec.ReturnToLastGood = false })
	}
	for _, p := range s.controllers { // a spec is not an object of its own here
		p.relist()
	}
	s.settle()
	s.checkEnd(true)
	return s.wrong
}

// settle runs until all pools have arrived, or nothing changes for longer than any timeout.
func (s *simulation) settle() {
	const quiet = 16 * 60 // longer than the night between two windows
	last, since := s.version, 0
	for minute := 0; s.wrong == "" && since < quiet && !s.arrived(); minute++ {
		if minute > 2*24*60 {
			s.fault("the fleet does not come to rest")
		}
		s.step()
		if since++; s.version != last {
			last, since = s.version, 0
		} else if since > 10 { // only time passes
			s.now, since = s.now.Add(14*time.Minute), since+14
		}
	}
}

func (s *simulation) arrived() bool {
	return !slices.ContainsFunc(s.order, func(pool string) bool { return !s.end(pool).HasArrived() })
}

// end returns the state of a pool.
func (s *simulation) end(pool string) machines.End {
	e := machines.End{Pool: pool, Behind: s.behind(pool), Rollout: s.memory.pools[pool].Rollout}
	if len(s.behind("master")) > 0 { // the only one that others wait for
		e.Others = []string{"master"}
	}
	return e
}

// behind returns the nodes of a pool that do not run its configuration.
func (s *simulation) behind(pool string) (out []string) {
	for name, n := range s.memory.nodes {
		if s.poolOf(n) == pool && (s.machines[name].Running != s.memory.pools[pool].Configuration.Name || s.machines[name].Disturbed()) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// checkEnd checks that each pool has arrived or, unless everything works, says why not and names who is to
// blame.
func (s *simulation) checkEnd(healed bool) {
	names := slices.Sorted(maps.Keys(s.memory.nodes))
	for _, pool := range s.order {
		if wrong := s.end(pool).Wrong(healed, names); wrong != "" {
			s.fault("%s", wrong)
		}
	}
}

// seeds returns how many simulations to run: PIVOT_SWEEP=long runs all of them.
func seeds() int {
	switch {
	case os.Getenv("PIVOT_SWEEP") == "long":
		return 1000
	case testing.Short():
		return 10
	}
	return 40
}

const minutesOfFaults = 240

// TestSweepFleet: whatever happens to nodes and controllers, no more nodes are unavailable because of us than
// may be, and each rollout arrives or names who is to blame.
func TestSweepFleet(t *testing.T) {
	start, requests, events, asks := time.Now(), 0, 0, 0
	for seed := range seeds() {
		s := newSimulation(uint64(seed), rollout.Decide)
		if wrong := s.run(minutesOfFaults); wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
		requests, events, asks = requests+s.requests, events+s.events, asks+s.asks
	}
	t.Logf("swept %d fleets of 20 nodes in %s: %d requests, %d events, %d downloads asked for", seeds(), time.Since(start).Round(time.Second), requests, events, asks)
}
