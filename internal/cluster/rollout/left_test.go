package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// TestLeft: what becomes of the slot of a node that leaves its pool with it, and of the slots of a PoolRollout that is
// deleted. In each case, n3 was begun by the pool infra.
func TestLeft(t *testing.T) {
	// begun is small, in which n3 is in a state, and another node of infra is there, which is not changed.
	begun := func(state string, change ...func(m *memory)) *memory {
		m := small()
		m.addNode("i0", "rendered-infra-1", map[string]string{role("worker"): "", role("infra"): ""})
		m.change("n3", func(n *rollout.Node) {
			n.Annotations[api.DesiredConfig], n.Annotations[api.StateOfNode], n.Annotations[api.Reason] = "rendered-infra-1", state, "no space"
		})
		for _, pool := range []string{"worker", "infra"} {
			m.changeRollout(pool, func(p *rollout.Pool) { p.Rollout.Target = p.Configuration.Name })
		}
		m.changeRollout("infra", func(p *rollout.Pool) { p.Rollout.Taken, p.Finalizers = []string{"n3"}, []string{rollout.Finalizer} })
		for _, c := range change {
			c(m)
		}
		return m
	}
	pool := func(name string, change func(p *rollout.Pool)) func(m *memory) {
		return func(m *memory) { m.changePool(name, change) }
	}
	node := func(change func(n *rollout.Node)) func(m *memory) {
		return func(m *memory) { m.change("n3", change) }
	}
	orphan := pool("infra", func(p *rollout.Pool) { p.Orphan = true })
	deleted := pool("infra", func(p *rollout.Pool) { p.Deleted = true })
	stays := node(func(n *rollout.Node) { n.Labels[role("infra")] = "" })
	for name, c := range map[string]struct {
		fleet *memory
		gives string // by infra
		takes string // by infra and worker
		back  string // to infra
		says  string // a part of infra's sentence
		other string // a part of worker's sentence
	}{
		"a node in change gets the target of its pool": {begun(api.StateWorking), "n3=rendered-worker-2", "n3,", "",
			"waits for n3, in change since before they left the pool", "waits until these nodes serve: n3 has a slot of the pool infra: it is Working: no space"},
		"so does one that has failed": {begun(api.StateDegraded), "n3=rendered-worker-2", "n3,", "", "n3", "n3 has a slot of the pool infra"},
		"not while its pool is paused": {begun(api.StateDegraded, pool("worker", func(p *rollout.Pool) { p.Paused = true })), "", "n3,", "",
			"n3", "paused"},
		"so does one that is down with what it was given": {begun(api.StateDone, node(func(n *rollout.Node) {
			n.Annotations[api.CurrentConfig], n.Problem, n.NotReadySince = "rendered-infra-1", "is not Ready", newMemory().now
		})), "n3=rendered-worker-2", "n3,", "", "n3", "n3 has a slot of the pool infra: it is not Ready"},
		"so does one that lacks an argument": {begun(api.StateDone, node(func(n *rollout.Node) {
			n.Annotations[api.CurrentConfig], n.System = "rendered-infra-1", &api.JudgedSystem{Current: "rendered-infra-1", BootID: n.BootID, Missing: []string{"a"}}
		})), "n3=rendered-worker-2", "n3,", "", "n3", "n3 has a slot of the pool infra: it lacks the kernel argument a"},
		"so does one that booted another system": {begun(api.StateDone, node(func(n *rollout.Node) {
			n.Annotations[api.CurrentConfig], n.System = "rendered-infra-1", &api.JudgedSystem{Current: "rendered-infra-0", BootID: n.BootID}
		})), "n3=rendered-worker-2", "n3,", "", "n3", "n3 has a slot of the pool infra"},
		"so does one that has left its new pool's target": {begun(api.StateDegraded, node(func(n *rollout.Node) {
			for _, name := range []string{api.DesiredConfig, api.CurrentConfig, api.FailedConfig} {
				n.Annotations[name] = "rendered-worker-2"
			}
			n.System = &api.JudgedSystem{Current: "rendered-infra-1", BootID: n.BootID}
		})), "n3=rendered-worker-2", "n3,", "", "n3", "n3 has a slot of the pool infra"},
		"not one that is down, while its pool is paused": {begun(api.StateDone, pool("worker", func(p *rollout.Pool) { p.Paused = true }), node(func(n *rollout.Node) {
			n.Annotations[api.CurrentConfig], n.Problem, n.NotReadySince = "rendered-infra-1", "is not Ready", newMemory().now
		})), "", "n3,", "", "n3", "paused"},
		"nor without a pool":          {begun(api.StateDegraded, node(func(n *rollout.Node) { clear(n.Labels) })), "", "n3,n2", "", "n3", "n2"},
		"nor if somebody cordoned it": {begun(api.StateDegraded, node(func(n *rollout.Node) { n.Cordoned = true })), "", "n3,", "", "n3", "n3"},
		"one that serves gives its slot back": {begun(api.StateDone, node(func(n *rollout.Node) {
			n.Annotations[api.CurrentConfig], n.System = "rendered-infra-1", &api.JudgedSystem{Current: "rendered-infra-1", BootID: n.BootID}
		})), "", ",", "n3", "", "waits until these nodes serve: n3 has a slot of the pool infra (at most"},
		"the pool is deleted": {begun(api.StateWorking, orphan), "n3=rendered-worker-2", "n3,", "", "n3", "n3 has a slot of the pool infra"},
		"the PoolRollout is deleted": {begun(api.StateWorking, stays, deleted, pool("infra", func(p *rollout.Pool) { p.Configuration.Name = "rendered-infra-2" })),
			"n3=rendered-infra-2", "n3,n2", "", "waits until the nodes that have begun are done, to delete the PoolRollout: n3, which is Working", "n2"},
		"the PoolRollout is deleted, and nobody has begun": {begun(api.StateDone, stays, deleted, node(func(n *rollout.Node) {
			n.Annotations[api.DesiredConfig] = "rendered-worker-1"
		})), "", ",n2", "n3", "waits until the PoolRollout is deleted", "n2"},
		"both are deleted": {begun(api.StateWorking, orphan, deleted), "n3=rendered-worker-2", "n3,", "", "n3", "n3"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := c.fleet.access("").Fleet(t.Context())
			d := rollout.Decide(f)
			worker, infra := d.Pools[0], d.Pools[1]
			var gives []string
			for _, g := range infra.Given {
				gives = append(gives, g.Name+"="+g.Config)
			}
			takes := fmt.Sprintf("%s,%s", strings.Join(infra.Rollout.Taken, " "), strings.Join(worker.Rollout.Taken, " "))
			if got := strings.Join(gives, " "); got != c.gives || takes != c.takes || namesOf(infra.Released) != c.back {
				t.Errorf("infra gives %q, want %q; slots %q, want %q; gives back %q, want %q", got, c.gives, takes, c.takes, namesOf(infra.Released), c.back)
			}
			if !strings.Contains(infra.Rollout.Waiting, c.says) || !strings.Contains(worker.Rollout.Waiting, c.other) {
				t.Errorf("infra: %q\nworker: %q", infra.Rollout.Waiting, worker.Rollout.Waiting)
			}
		})
	}
}

// TestOrphan: a PoolRollout without a pool is only looked at while it has slots. Nothing is written about its pool, and
// it is deleted when the last slot was given back.
func TestOrphan(t *testing.T) {
	m := small()
	m.changeRollout("infra", func(p *rollout.Pool) {
		p.Orphan, p.Rollout.Taken, p.Finalizers = true, []string{"n3"}, []string{"example.com/other", rollout.Finalizer}
	})
	m.deleteRollout("infra")
	c := m.access("")
	for range 2 { // the slot, then the finalizer
		c.relist()
		_, _ = rollout.Controller{Cluster: c, Decide: rollout.Decide}.Pass(t.Context())
	}
	if p := m.pools["infra"]; len(p.Rollout.Taken) > 0 || len(p.Finalizers) != 1 || p.Finalizers[0] != "example.com/other" {
		t.Errorf("%+v", p)
	}
	c.relist()
	if f, _ := c.Fleet(t.Context()); len(f.Pools) != 1 {
		t.Errorf("it is still looked at: %+v", f.Pools)
	}
}
