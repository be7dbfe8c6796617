package rollout_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/simnodes"
)

// broken is a product with one mistake, which the simulation must notice.
type broken struct {
	cas    func(kind string) bool
	before func(f *rollout.Fleet)
	after  func(f rollout.Fleet, d *rollout.Decision)
}

func brokenProducts() map[string]broken {
	kind := func(broken string) func(string) bool { return func(kind string) bool { return kind == broken } }
	eachPool := func(change func(p *rollout.Pool)) func(f *rollout.Fleet) {
		return func(f *rollout.Fleet) {
			for i := range f.Pools {
				if !f.Pools[i].Orphan {
					change(&f.Pools[i])
				}
			}
		}
	}
	return map[string]broken{
		"takes slots whatever the version is":        {cas: kind("take")},
		"gives slots back without changing the node": {cas: kind("no fence")},
		"asks old versions for downloads":            {cas: kind("ask")},
		"forgets the slots of a deleted PoolRollout": {cas: kind("no finalizer")},
		"forgets the slots of nodes that leave the pool": {after: func(f rollout.Fleet, d *rollout.Decision) {
			for i := range d.Pools {
				d.Pools[i].Rollout.Taken = slices.DeleteFunc(d.Pools[i].Rollout.Taken, func(name string) bool {
					j := slices.IndexFunc(f.Nodes, func(n rollout.Node) bool { return n.Name == name })
					if j < 0 {
						return false
					}
					_, infra := f.Nodes[j].Labels[role("infra")]
					left := infra == (f.Pools[i].Name == "worker")
					if left && f.Pools[i].Name != "master" {
						d.Pools[i].Released = append(d.Pools[i].Released, f.Nodes[j])
						return true
					}
					return false
				})
			}
		}},
		"ignores the window":                    {before: eachPool(func(p *rollout.Pool) { p.Spec.Window = "" })},
		"waits for no Job":                      {before: eachPool(func(p *rollout.Pool) { p.Spec.Hooks = api.PoolHooks{} })},
		"ignores workloads":                     {before: eachPool(func(p *rollout.Pool) { p.Spec.Checks.Workloads = nil })},
		"ignores that a pool is paused":         {before: eachPool(func(p *rollout.Pool) { p.Paused = false })},
		"ignores the order of pools":            {before: eachPool(func(p *rollout.Pool) { p.Spec.After = nil })},
		"ignores that a PoolRollout is deleted": {before: eachPool(func(p *rollout.Pool) { p.Deleted = false })},
		"ignores the check of nodes": {before: func(f *rollout.Fleet) {
			for i := range f.Nodes {
				f.Nodes[i].Check = ""
			}
		}},
		"forgets who was asked for a download": {before: func(f *rollout.Fleet) {
			eachPool(func(p *rollout.Pool) { p.Rollout.Downloads = nil })(f)
			for i := range f.Nodes {
				f.Nodes[i].Annotations = maps.Clone(f.Nodes[i].Annotations)
				delete(f.Nodes[i].Annotations, api.Download)
			}
		}},
		"asks one node too many for a download": {before: eachPool(func(p *rollout.Pool) {
			if p.Spec.ParallelDownloads != nil && p.Spec.ParallelDownloads.IntVal > 0 {
				n := intstr.FromInt32(p.Spec.ParallelDownloads.IntVal + 1)
				p.Spec.ParallelDownloads = &n
			}
		})},
		"ignores the slots that are taken": {before: eachPool(func(p *rollout.Pool) { p.Rollout.Taken = nil })},
		"allows one node too many": {before: eachPool(func(p *rollout.Pool) {
			n := intstr.FromInt32(p.MaxUnavailable.IntVal + 2)
			p.MaxUnavailable = &n
		})},
		"believes what a node says": {before: func(f *rollout.Fleet) {
			for i := range f.Nodes {
				f.Nodes[i].System = nil
			}
		}},
		"retargets what an administrator has cordoned": {before: func(f *rollout.Fleet) {
			for i := range f.Nodes {
				f.Nodes[i].Cordoned = false
			}
		}},
		"passes slots on at once": {before: func(f *rollout.Fleet) {
			for i := range f.Pools {
				f.Pools[i].Rollout.Begun = slices.Clone(f.Pools[i].Rollout.Begun)
				for j := range f.Pools[i].Rollout.Begun {
					f.Pools[i].Rollout.Begun[j].Late = true
				}
			}
		}},
		"passes slots on that are to stay":         {before: eachPool(func(p *rollout.Pool) { p.Spec.PassSlotOn = true })},
		"leaves marks of nodes that are to change": {after: func(_ rollout.Fleet, d *rollout.Decision) { d.Marked = nil }},
		"says nothing": {after: func(_ rollout.Fleet, d *rollout.Decision) {
			for i := range d.Pools {
				d.Pools[i].Rollout.Waiting = ""
			}
		}},
		"gives no slot back": {after: func(f rollout.Fleet, d *rollout.Decision) {
			for i := range d.Pools {
				for _, n := range d.Pools[i].Released {
					d.Pools[i].Rollout.Taken = append(d.Pools[i].Rollout.Taken, n.Name)
				}
				d.Pools[i].Released = nil
			}
		}},
		"takes the slot of a node that cannot start the target, before it has what it had": {after: func(f rollout.Fleet, d *rollout.Decision) {
			for i := range d.Pools {
				d.Pools[i].Rollout.Taken = slices.DeleteFunc(d.Pools[i].Rollout.Taken, func(name string) bool {
					j := slices.IndexFunc(f.Nodes, func(n rollout.Node) bool {
						return n.Name == name && strings.HasPrefix(n.Annotations[api.CannotStart], n.Annotations[api.DesiredConfig]+" ")
					})
					if j < 0 {
						return false
					}
					d.Pools[i].Released = append(d.Pools[i].Released, f.Nodes[j])
					d.Pools[i].Given = slices.DeleteFunc(d.Pools[i].Given, func(c rollout.Change) bool { return c.Name == name })
					return true
				})
			}
		}},
		"gives what is not the pool's": {after: func(_ rollout.Fleet, d *rollout.Decision) {
			for i := range d.Pools {
				for j := range d.Pools[i].Given {
					d.Pools[i].Given[j].Config += "0"
				}
			}
		}},
	}
}

// decide is Decide with the mistake.
func (b broken) decide(f rollout.Fleet) rollout.Decision {
	if b.before != nil {
		f.Nodes, f.Pools = slices.Clone(f.Nodes), slices.Clone(f.Pools)
		b.before(&f)
	}
	d := rollout.Decide(f)
	if b.after != nil {
		b.after(f, &d)
	}
	return d
}

// mostSeeds is how many simulations a mistake must be noticed in.
const mostSeeds = 100

// TestBroken: the simulation notices each mistake.
func TestBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	for name, b := range brokenProducts() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(mostSeeds) {
				s := newSimulation(seed, b.decide)
				s.ignoreCAS = b.cas
				if wrong := s.run(minutesOfFaults); wrong != "" && (b.cas == nil || strings.Contains(wrong, "limit")) {
					t.Logf("seed %d: %s", seed, wrong)
					return
				}
			}
			t.Errorf("nothing is wrong in %d simulations", mostSeeds)
		})
	}
}

// TestGiveOfOldController: a controller has taken a slot for a node and stops before it gives it the configuration.
// Meanwhile the pool returns, and another controller gives the slot to the node that has to go back. When the
// first one continues, its patch is refused. Random faults lead to this too rarely to notice an API server that
// accepts the patch of an old version.
func TestGiveOfOldController(t *testing.T) {
	for _, refuses := range []bool{true, false} {
		s := newSimulation(0, rollout.Decide)
		s.ignoreCAS = func(kind string) bool { return kind == "give" && !refuses }
		const ahead = "n03"
		s.addNode(ahead, "rendered-infra-2", s.memory.nodes[ahead].Labels)
		s.machines[ahead] = simnodes.New(ahead, s.memory, "rendered-infra-2", s.rand, 1)
		one := intstr.FromInt32(1)
		s.limits["infra"] = &simnodes.Limit{Number: 1}
		s.targets["infra"]["rendered-infra-2"] = true
		release := func(config string) {
			s.changePool("infra", func(p *rollout.Pool) {
				p.Spec, p.MaxUnavailable, p.Configuration.Name, p.Version = api.PoolRolloutSpec{}, &one, config, s.next()
			})
		}
		pass := func(c *access) {
			c.relist()
			_, _ = rollout.Controller{Cluster: c, Decide: rollout.Decide}.Pass(t.Context()) // one of them gets a conflict
		}
		release("rendered-infra-2")
		first, second := s.controllers[0].access, s.controllers[1].access
		meanwhile := 0
		first.pause = func(call string) bool {
			if call == "give" {
				meanwhile++
				release("rendered-infra-1")
				for range 3 {
					pass(second)
				}
			}
			return true
		}
		pass(first)
		if taken := s.memory.pools["infra"].Rollout.Taken; meanwhile != 1 || !slices.Equal(taken, []string{ahead}) {
			t.Fatalf("the other controller acts %d times, and gives the slot to %q", meanwhile, taken)
		}
		if (s.wrong == "") != refuses || !refuses && !strings.Contains(s.wrong, "limit") {
			t.Errorf("an API server that refuses (%v): %q", refuses, s.wrong)
		}
	}
}

// TestGiveWhileReleased: a controller that believes that its pool is paused gives back the slot of a node that has not begun.
// Between its change of the node and that of the PoolRollout, another one gives the node its configuration. Since the other
// one makes a new version of the PoolRollout before, the slot stays. Random faults lead to this too rarely.
func TestGiveWhileReleased(t *testing.T) {
	for _, counts := range []bool{true, false} {
		s := newSimulation(0, rollout.Decide)
		one := intstr.FromInt32(1)
		s.limits["infra"] = &simnodes.Limit{Number: 1}
		s.targets["infra"]["rendered-infra-2"] = true
		s.changePool("infra", func(p *rollout.Pool) {
			p.Spec, p.MaxUnavailable, p.Configuration.Name, p.Version, p.Paused = api.PoolRolloutSpec{}, &one, "rendered-infra-2", s.next(), true
		})
		first, second := s.controllers[0].access, s.controllers[1].access
		decide := func(f rollout.Fleet) rollout.Decision {
			d := rollout.Decide(f)
			for i := range d.Pools {
				if !counts && slices.Equal(d.Pools[i].Rollout.Taken, f.Pools[i].Rollout.Taken) { // it gives without a new version
					d.Pools[i].Rollout = f.Pools[i].Rollout
				}
			}
			return d
		}
		pass := func(c *access) {
			c.relist()
			_, _ = rollout.Controller{Cluster: c, Decide: decide}.Pass(t.Context()) // one of them gets a conflict
		}
		pass(first)
		s.changeRollout("infra", func(p *rollout.Pool) {
			p.Rollout.Taken, p.Rollout.Target, p.Finalizers = []string{"n03"}, "rendered-infra-2", []string{rollout.Finalizer}
		})
		meanwhile := 0
		second.pause = func(call string) bool {
			if call == "after fence" && meanwhile == 0 {
				meanwhile++
				s.changePool("infra", func(p *rollout.Pool) { p.Paused, p.Version = false, s.next() })
				pass(first)
			}
			return true
		}
		pass(second)
		if given := s.nodes["n03"].Annotations[api.DesiredConfig]; meanwhile != 1 || given != "rendered-infra-2" {
			t.Fatalf("the other controller acts %d times, and n03 has %s", meanwhile, given)
		}
		if keeps := slices.Contains(s.memory.pools["infra"].Rollout.Taken, "n03"); keeps != counts {
			t.Errorf("a controller that makes a new version (%v): the slot stays (%v)", counts, keeps)
		}
	}
}

// TestGoneInOldCache: a controller with a cache that is older than a node knows of the node's slot, and asks the API
// server before it gives that back. Random faults lead to this too rarely.
func TestGoneInOldCache(t *testing.T) {
	for _, asks := range []bool{true, false} {
		s := newSimulation(0, rollout.Decide)
		s.ignoreCAS = func(kind string) bool { return kind == "exists" && !asks }
		one := intstr.FromInt32(1)
		s.limits["infra"] = &simnodes.Limit{Number: 1}
		s.targets["infra"]["rendered-infra-2"] = true
		s.changePool("infra", func(p *rollout.Pool) {
			p.Spec, p.MaxUnavailable, p.Configuration.Name, p.Version = api.PoolRolloutSpec{}, &one, "rendered-infra-2", s.next()
		})
		first, second := s.controllers[0].access, s.controllers[1].access
		first.relist()
		_, _ = rollout.Controller{Cluster: first, Decide: rollout.Decide}.Pass(t.Context()) // the slot is what counts
		begun := s.memory.pools["infra"].Rollout.Taken
		if len(begun) != 1 {
			t.Fatalf("slots: %q", begun)
		}
		second.relist()
		delete(second.nodes, begun[0])
		_, err := rollout.Controller{Cluster: second, Decide: rollout.Decide}.Pass(t.Context())
		if errors.Is(err, rollout.ErrConflict) != asks || (s.wrong == "") != asks {
			t.Errorf("a controller that asks (%v): %v; %q", asks, err, s.wrong)
		}
	}
}
