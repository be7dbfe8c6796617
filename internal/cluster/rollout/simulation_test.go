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
	"testing"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/simnodes"
)

// simulation is a fleet in virtual time, with two controllers that act at the same time. Everything in it
// follows from the seed.
type simulation struct {
	*memory
	rand        *rand.Rand
	machines    map[string]*simnodes.Machine
	controllers []*process
	decide      func(rollout.Fleet) rollout.Decision
	limits      map[string]*simnodes.Limit
	loads       map[string]*simnodes.Limit // of downloads
	targets     map[string]map[string]bool
	begun       map[string]string // the pool that has given a node its configuration
	asked       map[string]string // the pool that has asked a node for a download
	begunAt     map[string]time.Time
	passedOn    map[string]bool // nodes that take too long, and have given their slot to others
	calm        bool            // no more faults
	skewed      bool            // the controllers have different clocks
	backup      *backup         // of etcd; nil: there is none
	faults      map[string]int  // how often each was injected
	wrong       string
}

// process is a controller that runs, and stops between each two requests.
type process struct {
	*access
	resume func() (string, bool)
	stop   func()
	lag    int // percentage of objects seen in an older state at a time
}

func newSimulation(seed uint64, decide func(rollout.Fleet) rollout.Decision) *simulation {
	s := &simulation{memory: newMemory(), rand: rand.New(rand.NewPCG(seed, 27)), machines: map[string]*simnodes.Machine{}, decide: decide,
		limits: map[string]*simnodes.Limit{}, loads: map[string]*simnodes.Limit{}, targets: map[string]map[string]bool{},
		begun: map[string]string{}, asked: map[string]string{}, begunAt: map[string]time.Time{}, passedOn: map[string]bool{}, faults: map[string]int{}, skewed: seed%4 == 3}
	masters := 3
	if seed%3 == 2 {
		masters, s.faults["single control plane"] = 1, 1
	}
	for _, pool := range []string{"master", "worker", "infra"} {
		s.addPool(pool, "rendered-"+pool+"-1")
		s.targets[pool] = map[string]bool{"rendered-" + pool + "-1": true}
	}
	for i := range 20 {
		s.join(fmt.Sprintf("n%02d", i), []string{"master", "infra"}[min(i/masters, 1)], i < 9)
	}
	for _, pool := range s.order {
		s.settings(pool)
	}
	s.memory.check, s.memory.given, s.memory.took, s.memory.healthy = s.checkLimits, s.checkGiven, s.checkTaken, passes()
	s.memory.forgotten = func(pool string) {
		s.loads[pool] = &simnodes.Limit{} // as the defaults say
		s.changePool(pool, func(p *rollout.Pool) { p.Spec.Adopt = s.calm })
	}
	for i := range 2 {
		s.controllers = append(s.controllers, &process{access: s.memory.access(fmt.Sprintf("n%02d", i)), lag: s.rand.IntN(90)})
		s.forget(s.controllers[i])
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
	if s.rand.IntN(8) == 0 { // it was never given any configuration
		config = "rendered-" + name + "-0"
		s.nodes[name].Annotations, s.nodes[name].System = map[string]string{}, &api.JudgedSystem{Current: config, BootID: name + "-0"}
	}
	s.machines[name] = simnodes.New(name, s.memory, config, rand.New(rand.NewPCG(s.rand.Uint64(), 1)), 1)
}

func (s *simulation) fault(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = s.now.Format("15:04") + " " + fmt.Sprintf(format, args...)
	}
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
	s.runJobs()
	s.checkLimits("a minute")
	for range 6 {
		p := s.controllers[s.rand.IntN(2)]
		if p.resume == nil {
			s.start(p)
		}
		if _, more := p.resume(); !more {
			p.resume = nil
		} else if !s.calm && s.rand.IntN(30) == 0 {
			s.kill(p)
		}
	}
}

// kill ends a controller.
func (s *simulation) kill(p *process) {
	if p.resume != nil {
		p.stop()
		p.resume = nil
	}
	s.forget(p)
}

// forget begins a controller that knows nothing, perhaps on a node with another clock.
func (s *simulation) forget(p *process) {
	p.relist()
	p.refused, p.down = nil, map[string]time.Time{}
	if p.skew = 0; s.skewed {
		p.skew = time.Duration(s.rand.IntN(5)-2) * 75 * time.Minute
		s.faults["clocks"]++
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

// run simulates faults, then their end, and returns what is wrong; "" if nothing is.
func (s *simulation) run(minutes int) string {
	for range minutes {
		if s.step(); s.wrong != "" {
			return s.wrong
		}
	}
	s.calm = true
	s.controllers[1].down = s.controllers[0].down // each says since when a node is missing, and two would write that in turn for ever
	for _, c := range s.machines {
		c.Calm()
	}
	for _, pool := range s.order {
		s.changePool(pool, func(p *rollout.Pool) { p.Paused, p.Version, p.Orphan = false, s.next(), false })
		s.changeSettings(pool, func(spec *api.PoolRolloutSpec) { spec.Window, spec.Adopt = "", true })
	}
	s.settle()
	if s.checkEnd(false); s.wrong != "" {
		return s.wrong
	}
	for _, name := range slices.Sorted(maps.Keys(s.machines)) { // somebody heals what is named
		s.machines[name].Retry()
		s.change(name, func(n *rollout.Node) {
			n.Cordoned = n.Annotations[api.CordonedFor] != ""
			delete(n.Annotations, lacksGPU)
		})
	}
	clear(s.workloads)
	clear(s.denied)
	maps.DeleteFunc(s.jobs, func(_ string, state rollout.JobState) bool { return state.Failure != "" })
	for _, pool := range s.order { // a configuration that was given up is tried again
		s.workloads[workloadOf(pool)] = ""
		s.changeSettings(pool, func(spec *api.PoolRolloutSpec) { spec.ReturnToLastGood, spec.Adopt = false, true })
		if s.hasDead(pool) { // only the fix ends that, and must reach them
			s.rollOut(pool, "rendered-"+pool+"-5")
		}
	}
	s.settle()
	for range 30 { // longer than nodes stay guarded
		s.step()
	}
	s.checkEnd(true)
	return s.wrong
}

// hasDead reports whether kubelet is dead on a node of a pool, or would be with the pool's configuration.
func (s *simulation) hasDead(pool string) bool {
	for name, n := range s.memory.nodes {
		if c := s.machines[name]; s.poolOf(n) == pool && (c.IsDead() || c.IsDeadWith(s.memory.pools[pool].Configuration.Name)) {
			return true
		}
	}
	return false
}

// settle runs until all pools have arrived, or nothing changes for longer than any timeout.
func (s *simulation) settle() {
	const quiet = 16 * 60 // longer than the night between two windows
	last, since := s.version, 0
	for minute := 0; s.wrong == "" && since < quiet && !s.arrived(); minute++ {
		if minute > 2*24*60 && slices.Contains(slices.Collect(maps.Values(s.denied)), true) {
			return // what is denied is tried each minute
		} else if minute > 2*24*60 {
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
func (s *simulation) end(pool string) simnodes.End {
	e := simnodes.End{Pool: pool, Behind: s.behind(pool), Rollout: s.memory.pools[pool].Rollout}
	if len(s.behind("master")) > 0 || s.memory.pools["master"].Rollout.Waiting != "" { // the only one that others wait for
		e.Others = append(e.Others, "pool master")
	}
	for w, problem := range s.workloads {
		if problem != "" {
			e.Others = append(e.Others, w.Namespace+"/"+w.Name)
		}
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
	for name, n := range s.memory.nodes {
		if _, guarded := n.Annotations[rollout.Guarded]; healed && (guarded || len(n.Taints) > 0) {
			s.fault("%s is still marked: %v, %v", name, n.Annotations, n.Taints)
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
	start, requests, events, asks, faults := time.Now(), 0, 0, 0, map[string]int{}
	for seed := range seeds() {
		s := newSimulation(uint64(seed), rollout.Decide)
		if wrong := s.run(minutesOfFaults); wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
		requests, events, asks = requests+s.requests, events+s.events, asks+s.asks
		for fault, n := range s.faults {
			faults[fault] += n
		}
	}
	for _, fault := range []string{"restored etcd", "dead kubelet", "denied", "clocks", "single control plane"} {
		if faults[fault] == 0 {
			t.Errorf("there was no fault %q", fault)
		}
	}
	t.Logf("swept %d fleets of 20 nodes in %s: %d requests, %d events, %d downloads asked for; faults: %v", seeds(), time.Since(start).Round(time.Second), requests, events, asks, faults)
}
