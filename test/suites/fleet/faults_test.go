package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/fleet"
	"machine-pivot/test/worlds/simnodes"
)

const (
	sizeOfFleet = 500
	tick        = 200 * time.Millisecond // is a minute of a machine
	faultsFor   = 60 * time.Second
	restAfter   = 15 * time.Second // without any event
	triedWithin = 75 * time.Second // is a change that was denied
	settlesIn   = 10 * time.Minute // on a busy host
)

// TestFleetFaults is the sweep of internal/cluster/rollout with the real program and the real API server, in real time.
// Two replicas are killed at random moments and lose their Lease to one another; 500 machines are simulated. What is
// simulated is decided by the seed; when it happens is not. Each fault must occur in one of the seeds.
func TestFleetFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	const seeds = 5
	var mu sync.Mutex
	var all []*simulated
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel() // it mostly waits
			f := newSimulated(t, seed)
			f.run()
			mu.Lock()
			defer mu.Unlock()
			all = append(all, f)
		})
	}
	t.Cleanup(func() {
		sum := map[string]int{}
		for _, f := range all {
			for fault, n := range f.faulty() {
				sum[fault] += n
			}
		}
		t.Logf("faults of %d seeds: %v", len(all), sum)
		for fault, n := range sum {
			if n == 0 && len(all) == seeds {
				t.Errorf("there was no fault %q", fault)
			}
		}
	})
}

// simulated is a world of simulated machines. What the tests know of the nodes is the state after an event of one
// watch, so it is a state in which they really were.
type simulated struct {
	*world
	watcher client.WithWatch
	slots   []*fleet.Slot
	began   time.Time

	mu       sync.Mutex
	rand     *rand.Rand
	ticks    int
	calm     bool
	complete bool // all nodes have been seen
	nodes    map[string]*rollout.Node
	machines map[string]*simnodes.Machine
	draft    *rollout.Node     // of the machine that takes a step
	writing  map[string]uint64 // machines that wait until they see what they wrote: the version, 0 if it is not known yet
	writes   chan func()
	pools    map[string]*pool
	given    map[string][]string // configurations, by node
	last     time.Time           // of an event
	wrong    string
	count    counts
	denials  int // changes of nodes that were denied
	seed     uint64
	releases map[string]int    // of the pools' MachineConfigs
	backup   *backup           // of etcd; nil: there is none
	restores bool              // the backup is to be restored
	restored map[string]uint64 // the versions of the nodes that were restored last
	excused  map[string]bool   // nodes that are disturbed by what they were given before a restore
	again    map[string]int    // how often a node was given again what it had left
	written  map[string]int    // on nodes by the controllers: how often, by what
}

// pool is what is known of a pool.
type pool struct {
	limit          *simnodes.Limit
	configurations map[string]bool // that it has or had
	configuration  string
	targets        int // how often another configuration was rolled out
	rollout        api.PoolRolloutStatus
}

// counts are how often something happened. rollouts: PoolRollouts that were deleted; hand: old systems booted by hand; wrong:
// reports of kubelets with wrong clocks; fixes: of pools with dead kubelets.
type counts struct {
	given, kills, steals, joins, deletions, rollouts, hand, restores, wrong, fixes int
}

var poolNames = []string{"master", "infra", "worker"}

func newSimulated(t *testing.T, seed uint64) *simulated {
	f := &simulated{world: newWorld(t, 0), rand: rand.New(rand.NewPCG(seed, 500)), nodes: map[string]*rollout.Node{},
		machines: map[string]*simnodes.Machine{}, writing: map[string]uint64{}, pools: map[string]*pool{}, given: map[string][]string{}, written: map[string]int{}, seed: seed, releases: map[string]int{}, restored: map[string]uint64{}, excused: map[string]bool{}, again: map[string]int{}, writes: make(chan func(), 2*sizeOfFleet)}
	var err error
	if f.watcher, err = client.NewWithWatch(f.plane.Admin(), client.Options{Scheme: f.Scheme()}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		go func() {
			for write := range f.writes {
				write()
			}
		}()
	}
	t.Cleanup(func() { close(f.writes) })
	return f
}

// run lets faults happen, ends them, and then heals what was named.
func (f *simulated) run() {
	ctx, cancel := context.WithCancel(f.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	f.populate(ctx)
	f.began, f.last = time.Now(), time.Now()
	for _, watch := range []func(context.Context){f.watchNodes, f.watchPools, f.watchRollouts, f.step} {
		all.Go(func() { watch(ctx) })
	}
	for range 2 {
		f.slots = append(f.slots, f.fleet.Slot())
	}
	for _, s := range f.slots {
		all.Go(func() { s.Run(ctx) })
	}
	f.faults(ctx)
	f.end()
	f.settle("after the faults", false)
	f.heal()
	f.settle("after the healing", true)
	f.report()
}

// populate makes the pools and nodes.
func (f *simulated) populate(ctx context.Context) {
	f.Helper()
	for _, name := range poolNames {
		f.addPool(name)
	}
	f.applyPolicy(fleet.Account)
	masters := f.masters()
	for i := range sizeOfFleet {
		f.join(ctx, fmt.Sprintf("n%03d", i), []string{"master", "infra", "worker"}[min((i+50-masters)/50, 2)])
	}
	f.flush()
	if f.wrong != "" {
		f.Fatal(f.wrong)
	}
}

// masters returns how many nodes the control plane has.
func (f *simulated) masters() int {
	if f.seed%2 == 1 {
		return 1
	}
	return 5
}

// flush waits until all writes so far are done.
func (f *simulated) flush() {
	var all sync.WaitGroup
	for range 20 {
		all.Add(1)
		f.writes <- func() { all.Done(); all.Wait() }
	}
	all.Wait()
}

func (f *simulated) addPool(name string) {
	f.Helper()
	number, percent := 2+f.rand.IntN(7), 10+f.rand.IntN(20)
	if name == "worker" {
		number *= 20
	}
	most, limit := intstr.FromInt32(int32(number)), &simnodes.Limit{Number: number}
	if f.rand.IntN(2) == 0 {
		most, limit = intstr.FromString(fmt.Sprintf("%d%%", percent)), &simnodes.Limit{Percent: percent}
	}
	if name == "master" {
		limit = &simnodes.Limit{Number: 1}
	}
	f.pools[name] = &pool{limit: limit, configurations: map[string]bool{"old": true}}
	spec := map[string]any{"canary": f.rand.IntN(5), "soak": fmt.Sprintf("%ds", f.rand.IntN(5)), "missingAfter": "20s",
		"stopAfter": []int{1, 20, 60, 100}[f.rand.IntN(4)], "returnToLastGood": f.rand.IntN(2) == 0}
	if name != "master" && f.rand.IntN(4) == 0 {
		spec["after"] = []string{"master"}
	}
	f.plane.Apply(map[string]any{"apiVersion": "machine-pivot.io/v1alpha1", "kind": "PoolRollout", "metadata": map[string]any{"name": name}, "spec": spec})
	f.releases[name] = 0
	f.plane.Apply(configOf(name, "release=0"))
	f.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"maxUnavailable": most,
			"nodeSelector":          map[string]any{"matchLabels": map[string]string{roleOf(name): ""}},
			"machineConfigSelector": map[string]any{"matchLabels": map[string]string{role: name}}}})
	f.Logf("pool %s: maxUnavailable %s, %v", name, most.String(), spec)
}

func roleOf(pool string) string { return "node-role.kubernetes.io/" + pool }

// configOf returns the MachineConfig of a pool.
func configOf(pool, argument string) map[string]any {
	c := machineConfig("00-"+pool, argument)
	c["metadata"].(map[string]any)["labels"] = map[string]string{role: pool}
	return c
}

// poolOf returns the pool of a node.
func poolOf(n *rollout.Node) string {
	i := slices.IndexFunc(poolNames, func(pool string) bool { _, ok := n.Labels[roleOf(pool)]; return ok })
	return poolNames[i]
}

// fault is told what is wrong.
func (f *simulated) fault(format string, args ...any) {
	if f.wrong == "" {
		f.wrong = fmt.Sprintf("after %.1f s: ", time.Since(f.began).Seconds()) + fmt.Sprintf(format, args...)
	}
}

// step lets all machines that are not in the middle of a write do what is due, each tick.
func (f *simulated) step(ctx context.Context) {
	for each := time.NewTicker(tick); ; {
		select {
		case <-ctx.Done():
			each.Stop()
			return
		case <-each.C:
		}
		f.mu.Lock()
		if f.complete = f.complete || len(f.nodes) >= sizeOfFleet; !f.complete { // the watch has not shown them yet
			f.mu.Unlock()
			continue
		}
		f.ticks++
		if f.restores && len(f.writing) == 0 {
			if err := f.restore(ctx); err != nil && ctx.Err() == nil {
				f.fault("cannot restore etcd: %v", err)
			}
		}
		if f.restores { // as soon as all is written
			f.mu.Unlock()
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(f.machines)) {
			f.act(ctx, name, f.machines[name].Step)
		}
		if !f.calm {
			f.administrator(ctx)
		}
		f.mu.Unlock()
	}
}

// administrator does what people do: other configurations, cordons, joins, deletions of nodes and of PoolRollouts.
func (f *simulated) administrator(ctx context.Context) {
	names := slices.Sorted(maps.Keys(f.nodes))
	name := names[f.rand.IntN(len(names))]
	n, pool := f.nodes[name], poolNames[f.rand.IntN(len(poolNames))]
	switch f.rand.IntN(60) {
	case 0:
		if err := f.release(ctx, pool, f.rand.IntN(4)); err != nil && ctx.Err() == nil {
			f.fault("%v", err)
		}
	case 1:
		f.act(ctx, name, func() {
			if n.Annotations[api.CordonedFor] == "" {
				f.Change(name, func(n *rollout.Node) { n.Cordoned = !n.Cordoned })
			}
		})
	case 2:
		if _, writing := f.writing[name]; poolOf(n) != "master" && len(names) > sizeOfFleet*9/10 && !writing {
			f.count.deletions++
			f.write(func() error { return f.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}) })
		}
	case 3:
		f.count.joins++
		f.join(ctx, fmt.Sprintf("j%03d", f.count.joins), "worker")
	case 4:
		paused := f.rand.IntN(3) == 0
		f.write(func() error { return f.pause(ctx, "worker", paused) })
	case 6:
		if err := f.backUp(ctx); err != nil && ctx.Err() == nil {
			f.fault("cannot back etcd up: %v", err)
		}
	case 7:
		f.restores = f.backup != nil
	case 8:
		f.freeze(ctx, n, !isFrozen(n))
	case 9:
		f.bootByHand(ctx, names)
	case 5: // the next one has the default settings
		f.count.rollouts++
		f.write(func() error {
			return f.Delete(ctx, &api.PoolRollout{ObjectMeta: metav1.ObjectMeta{Name: pool}})
		})
	}
}

// bootByHand boots the old system of one of the machines that have one.
func (f *simulated) bootByHand(ctx context.Context, names []string) {
	f.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		m := f.machines[name]
		boots := m.Boots()
		if f.act(ctx, name, m.BootByHand); m.Boots() > boots {
			f.count.hand++
			return
		}
	}
}

// release gives a pool another MachineConfig.
func (f *simulated) release(ctx context.Context, pool string, number int) error {
	f.releases[pool] = number
	spec := configOf(pool, fmt.Sprintf("release=%d", number))["spec"]
	return f.merge(ctx, &api.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "00-" + pool}}, map[string]any{"spec": spec})
}

func (f *simulated) pause(ctx context.Context, pool string, paused bool) error {
	return f.merge(ctx, &api.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}, map[string]any{"spec": map[string]any{"paused": paused}})
}

// faults kills replicas at random, and takes the Lease away, so that two believe that they have it.
func (f *simulated) faults(ctx context.Context) {
	for end := time.After(faultsFor); ; {
		f.mu.Lock()
		wait, kill, steal := time.Duration(2+f.rand.IntN(8))*time.Second, f.rand.IntN(3) > 0, f.rand.IntN(2) == 0
		s := f.slots[f.rand.IntN(2)]
		f.mu.Unlock()
		select {
		case <-end:
			return
		case <-time.After(wait):
		}
		if kill && s.Kill() {
			f.count.kills++
		}
		if steal && f.steal(ctx) {
			f.count.steals++
		}
	}
}

func (f *simulated) steal(ctx context.Context) bool {
	c := f.plane.Client(f.plane.Admin()).CoordinationV1().Leases("pivot-fleet")
	return c.Delete(ctx, "pivot-fleet-controller", metav1.DeleteOptions{}) == nil
}

// end ends the faults.
func (f *simulated) end() {
	f.Helper()
	f.mu.Lock()
	f.calm, f.restores = true, false
	for _, m := range f.machines {
		m.Calm()
	}
	f.mu.Unlock()
	f.flush()
	if err := f.pause(f.Context(), "worker", false); err != nil {
		f.Fatal(err)
	}
}

// heal does what somebody does who has read what the pools say.
func (f *simulated) heal() {
	f.Helper()
	for _, name := range poolNames {
		rollout := &api.PoolRollout{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := f.merge(f.Context(), rollout, map[string]any{"spec": map[string]any{"returnToLastGood": false}}); client.IgnoreNotFound(err) != nil {
			f.Fatal(err)
		}
	}
	healed := map[string]bool{}
	for ; !f.healOnce(healed); time.Sleep(tick) {
		if f.Context().Err() != nil {
			return
		}
	}
	f.fix()
}

// healOnce heals the machines that are not in the middle of a write, and reports whether all are healed.
func (f *simulated) healOnce(healed map[string]bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = time.Now() // what follows comes to rest later
	for name, m := range f.machines {
		if healed[name] {
			continue
		}
		f.act(f.Context(), name, func() {
			healed[name] = true
			m.Retry()
			f.Change(name, func(n *rollout.Node) { n.Cordoned = n.Annotations[api.CordonedFor] != "" })
		})
		if n := f.nodes[name]; n != nil && isFrozen(n) {
			f.freeze(f.Context(), n, false)
		}
	}
	return len(healed) >= len(f.machines)
}

// settle waits until all pools have arrived, or nothing happens any more, and checks that the pools say why.
func (f *simulated) settle(when string, healed bool) {
	f.Helper()
	start, quiet := time.Now(), restAfter
	if healed {
		quiet = triedWithin
	}
	for leads := start; !f.rests(leads, quiet); time.Sleep(tick) {
		if !slices.ContainsFunc(f.slots, func(s *fleet.Slot) bool { return s.Leads(f.Context()) }) {
			leads = time.Now()
		}
		if time.Since(start) > settlesIn {
			f.mu.Lock()
			f.fault("the fleet does not come to rest %s", when)
			f.mu.Unlock()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	names := slices.Sorted(maps.Keys(f.nodes))
	for _, e := range f.ends() {
		if wrong := e.Wrong(healed, names); wrong != "" {
			f.fault("%s", wrong)
		}
		f.Logf("%s: %.0f s, %s has %d nodes behind: %q", when, time.Since(start).Seconds(), e.Pool, len(e.Behind), e.Rollout.Waiting)
	}
	if f.wrong != "" {
		f.Fatal(f.wrong)
	}
}

// rests reports whether a fleet has arrived, or nothing happens in it although somebody leads.
func (f *simulated) rests(leads time.Time, quiet time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	arrived := !slices.ContainsFunc(f.ends(), func(e simnodes.End) bool { return !e.HasArrived() })
	return f.wrong != "" || arrived || time.Since(f.last) > quiet && time.Since(leads) > restAfter
}

// ends returns the states of the pools.
func (f *simulated) ends() []simnodes.End {
	var out []simnodes.End
	for _, name := range poolNames {
		e := simnodes.End{Pool: name, Rollout: f.pools[name].rollout}
		for node, n := range f.nodes {
			if poolOf(n) == name && (f.machines[node].Running != f.pools[name].configuration || f.machines[node].Disturbed()) {
				e.Behind = append(e.Behind, node)
			}
		}
		slices.Sort(e.Behind)
		if len(out) > 0 && len(out[0].Behind) > 0 {
			e.Others = []string{"pool master"}
		}
		out = append(out, e)
	}
	return out
}

// check checks the limits of all pools; f.mu is held.
func (f *simulated) check() {
	sizes, disturbed := map[string]int{}, map[string][]string{}
	for name, n := range f.nodes {
		pool := poolOf(n)
		if sizes[pool]++; !f.isExcused(name, n) && f.machines[name].Disturbed() {
			disturbed[pool] = append(disturbed[pool], name)
		}
	}
	for name, p := range f.pools {
		if wrong := p.limit.Exceeded(name, sizes[name], disturbed[name]); wrong != "" {
			f.fault("%s; the slots: %s; after %d restores\n%s", wrong, p.rollout.Taken, f.count.restores, f.describe(disturbed[name]))
		}
	}
}

// describe says how nodes are.
func (f *simulated) describe(names []string) string {
	var all []string
	for _, name := range names {
		n, m := f.nodes[name], f.machines[name]
		all = append(all, fmt.Sprintf("%s runs %s, its system %+v, cordoned %t, %q, %v", name, m.Running, n.System, n.Cordoned, n.Problem, n.Annotations))
	}
	return strings.Join(all, "\n")
}

// report checks and prints what was counted.
func (f *simulated) report() {
	f.Helper()
	requests := f.plane.Requests(fleet.Account)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checkGiven()
	perChange, peak := float64(len(requests))/float64(f.count.given), max(f.slots[0].Peak(), f.slots[1].Peak())
	f.Logf("swept a fleet of %d nodes in %.0f s: %+v, %d requests, %.1f for each change of a node, peak memory %d MB",
		sizeOfFleet, time.Since(f.began).Seconds(), f.count, len(requests), perChange, peak)
	byVerb := map[string]int{}
	for _, r := range requests {
		if what := strings.TrimSpace(r.Verb + " " + r.Resource); r.Status < 400 {
			byVerb[what]++
		} else {
			byVerb[fmt.Sprintf("%s, answered %d", what, r.Status)]++
			if r.Resource == "nodes" && r.Status == http.StatusUnprocessableEntity {
				f.denials++
			}
		}
	}
	f.Logf("faults: %v", f.faulty())
	f.Logf("requests: %v; written on nodes: %v", byVerb, f.written)
	if perChange > 10 {
		f.Errorf("the controllers have sent %.1f requests for each change of a node, want at most 10", perChange)
	}
	// A node can be deleted before it is given anything.
	if f.count.given < sizeOfFleet-f.count.deletions || f.count.kills == 0 || f.count.steals == 0 {
		f.Errorf("too little has happened: %+v", f.count)
	}
}

// faulty returns how often each fault has occurred.
func (f *simulated) faulty() map[string]int {
	out := map[string]int{"killed": f.count.kills, "lost Lease": f.count.steals, "restored etcd": f.count.restores, "booted by hand": f.count.hand,
		"clock": f.count.wrong, "denied": f.denials, "single control plane": 0, "dead kubelet": 0, "lie": 0}
	if f.masters() == 1 {
		out["single control plane"] = 1
	}
	for _, m := range f.machines {
		out["lie"] += m.Lies()
		out["dead kubelet"] += m.Deaths()
	}
	return out
}

// checkGiven checks what the nodes were given: only configurations of their pool, not more often than that has changed
// its own. No node was drained more often than that, or than it was healed.
func (f *simulated) checkGiven() {
	f.Helper()
	for name, n := range f.nodes {
		p, given, drains := f.pools[poolOf(n)], f.given[name], f.machines[name].Drains()
		for _, config := range given {
			if !p.configurations[config] {
				f.Errorf("%s of %s was given %s", name, poolOf(n), config)
			}
		}
		if len(given) > p.targets+f.count.restores || drains > len(given)+1+f.again[name] {
			f.Errorf("%s of %s was given %s and drained %d times; the pool had %d targets", name, poolOf(n), given, drains, p.targets)
		}
	}
}

// merge changes an object by a merge patch.
func (f *simulated) merge(ctx context.Context, o client.Object, patch any) error {
	return f.Patch(ctx, o, client.RawPatch(types.MergePatchType, text(patch)))
}
