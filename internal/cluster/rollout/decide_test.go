package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// small is a fleet of four workers with rendered-worker-1 in a pool with rendered-worker-2.
func small() *memory {
	m := newMemory()
	m.addPool("worker", "rendered-worker-2")
	m.addPool("infra", "rendered-infra-1")
	for i := range 4 {
		m.addNode(fmt.Sprintf("n%d", i), "rendered-worker-1", map[string]string{role("worker"): "", "topology.kubernetes.io/zone": string(rune('d' - i))})
	}
	return m
}

// TestDecide: what is given for each state of a fleet, and what the pool then waits for.
func TestDecide(t *testing.T) {
	node := func(name string, change func(n *rollout.Node)) func(m *memory) {
		return func(m *memory) { m.change(name, change) }
	}
	pool := func(change func(p *rollout.Pool)) func(m *memory) {
		return func(m *memory) { m.changePool("worker", change) }
	}
	note := func(name, value string) func(n *rollout.Node) {
		return func(n *rollout.Node) { n.Annotations[name] = value }
	}
	number := func(v intstr.IntOrString) func(m *memory) {
		return pool(func(p *rollout.Pool) { p.MaxUnavailable = &v })
	}
	for name, c := range map[string]struct {
		change  func(m *memory)
		gives   string // names of nodes
		waiting string // a part
		failing string // a part of NodeDegraded's message
	}{
		"the first zone by name": {func(*memory) {}, "n3", "waits for n3, which gets rendered-worker-2 now", ""},
		"half of four":           {number(intstr.FromString("50%")), "n3 n2", "at most 2 unavailable", ""},
		"rounded down":           {number(intstr.FromString("49%")), "n3", "at most 1 unavailable", ""},
		"at least one":           {number(intstr.FromInt32(0)), "n3", "at most 1 unavailable", ""},
		"no percentage":          {number(intstr.FromString("many")), "n3", "at most 1", `spec.maxUnavailable is "many"`},
		"too much":               {number(intstr.FromString("101%")), "n3", "at most 1", `spec.maxUnavailable is "101%"`},
		"paused":                 {pool(func(p *rollout.Pool) { p.Paused = true }), "", "paused", ""},
		"not rendered":           {pool(func(p *rollout.Pool) { p.Configuration.Name = "" }), "", "is rendered", ""},
		"every node":             {pool(func(p *rollout.Pool) { p.Selector = &metav1.LabelSelector{} }), "", "it would select each node", "it would select each node"},
		"window":                 {pool(func(p *rollout.Pool) { p.Spec.Window = "13:00-14:00 UTC" }), "", "opens at 2026-11-24 13:00 UTC", ""},
		"wrong window":           {pool(func(p *rollout.Pool) { p.Spec.Window = "noon" }), "", "until spec.window can be read", ""},
		"after a missing pool":   {pool(func(p *rollout.Pool) { p.Spec.After = []string{"x"} }), "", "the pool x, which does not exist", ""},
		"after itself":           {pool(func(p *rollout.Pool) { p.Spec.After = []string{"worker"} }), "", "which waits for this one", ""},
		"after one that is done": {pool(func(p *rollout.Pool) { p.Spec.After = []string{"infra"} }), "n3", "waits for n3", ""},
		"workload": {pool(func(p *rollout.Pool) {
			p.Spec.Checks.Workloads = []api.WorkloadReference{{Kind: "Deployment", Namespace: "a", Name: "b"}}
		}), "", "Deployment a/b is not available: it does not exist", ""},
		"a node that is not Ready is first": {node("n0", func(n *rollout.Node) { n.Problem = "is not Ready" }), "n0", "n0, which is not Ready", ""},
		"it takes the room": {func(m *memory) {
			m.change("n0", func(n *rollout.Node) {
				n.Problem, n.Annotations[api.DesiredConfig], n.Annotations[api.CurrentConfig], n.System = "is not Ready", "rendered-worker-2", "rendered-worker-2", nil
			})
		}, "", "n0 is not Ready", ""},
		"one that has failed is before one that is not Ready": {func(m *memory) {
			m.change("n3", func(n *rollout.Node) { n.Problem = "is not Ready" })
			m.change("n0", note(api.StateOfNode, api.StateDegraded))
		}, "n0", "waits for n0", "n0 is Degraded"},
		"another pool's configuration":              {pool(func(p *rollout.Pool) { p.Configuration.Name = "rendered-master-1" }), "", "is rendered", "names rendered-master-1, which was not rendered for the pool"},
		"a node that an administrator has cordoned": {node("n3", func(n *rollout.Node) { n.Cordoned = true }), "", "uncordons n3", ""},
		"one that got its slot before": {func(m *memory) {
			m.change("n3", func(n *rollout.Node) { n.Cordoned = true })
			m.changeRollout("worker", func(p *rollout.Pool) { p.Rollout.Taken, p.Finalizers = []string{"n3"}, []string{rollout.Finalizer} })
		}, "", "uncordons n3", ""},
		"a node that lacks an argument": {node("n0", func(n *rollout.Node) {
			n.System = &api.JudgedSystem{Current: "rendered-worker-1", Missing: []string{"audit=1"}}
		}), "n0", "n0, which lacks the kernel argument audit=1", "n0 lacks the kernel argument audit=1"},
		"a failed node comes first": {node("n0", note(api.StateOfNode, api.StateDegraded)), "n0", "waits for n0", "n0 is Degraded"},
		"the target has failed": {func(m *memory) {
			m.change("n0", note(api.DesiredConfig, "rendered-worker-2"))
			m.change("n0", note(api.StateOfNode, api.StateDegraded))
			m.change("n0", note(api.Reason, "no space"))
		}, "", "stopped: n0 has failed with rendered-worker-2; n0: Degraded: no space", "n0 Degraded: no space"},
		"the way back": {func(m *memory) {
			m.change("n0", note(api.DesiredConfig, "rendered-worker-2"))
			m.change("n0", note(api.StateOfNode, api.StateDegraded))
			m.changePool("worker", func(p *rollout.Pool) {
				p.Spec.ReturnToLastGood, p.Rollout.LastGood, p.Rollout.Taken = true, "rendered-worker-1", []string{"n0"}
			})
		}, "n0", "rendered-worker-2 is given up, since it failed on n0; the nodes get rendered-worker-1", "n0 Degraded"},
		"the way back leaves others": {func(m *memory) {
			m.change("n0", note(api.DesiredConfig, "rendered-worker-2"))
			m.change("n0", note(api.StateOfNode, api.StateDegraded))
			for _, name := range []string{"n1", "n2"} {
				m.change(name, note(api.DesiredConfig, "rendered-worker-3"))
				m.change(name, note(api.CurrentConfig, "rendered-worker-3"))
				m.change(name, func(n *rollout.Node) { n.System = &api.JudgedSystem{Current: "rendered-worker-3"} })
			}
			many := intstr.FromInt32(4)
			m.changePool("worker", func(p *rollout.Pool) {
				p.MaxUnavailable, p.Spec.ReturnToLastGood, p.Rollout.LastGood = &many, true, "rendered-worker-1"
			})
		}, "n0", "rendered-worker-2 is given up, since it failed on n0; the nodes get rendered-worker-1", "n0 Degraded"},
		"the way back from what no node was given": {func(m *memory) {
			m.change("n0", note(api.DesiredConfig, "rendered-worker-2"))
			m.change("n0", note(api.StateOfNode, api.StateDegraded))
			m.changePool("worker", func(p *rollout.Pool) { p.Spec.ReturnToLastGood, p.Rollout.LastGood = true, "rendered-master-1" })
		}, "", "stopped: n0 has failed with rendered-worker-2", "n0 Degraded"},
		"a node that does not come back": {func(m *memory) {
			m.change("n0", note(api.DesiredConfig, "rendered-worker-2"))
			m.change("n0", func(n *rollout.Node) { n.Problem, n.NotReadySince = "is not Ready", m.now.Add(-time.Hour) })
			m.changePool("worker", func(p *rollout.Pool) { p.Rollout.Taken = []string{"n0"} })
		}, "", "n0: missing: it is not Ready since", "n0 missing"},
		"a node of the control plane": {node("n3", func(n *rollout.Node) { n.Labels[role("control-plane")] = "" }), "n2", "waits for n2", "n3 is a node of the control plane"},
		"a node in two pools": {func(m *memory) {
			m.addPool("gpu", "rendered-gpu-1")
			m.change("n3", func(n *rollout.Node) { n.Labels[role("gpu")], n.Labels[role("infra")] = "", "" })
		}, "n2", "waits for n2", ""},
		"a node without a configuration": {node("n3", func(n *rollout.Node) { delete(n.Annotations, api.DesiredConfig) }), "n2", "waits for n2", ""},
		"a node that was down before": {func(m *memory) {
			m.change("n0", note(api.DesiredConfig, "rendered-worker-2"))
			m.change("n0", func(n *rollout.Node) { n.Problem, n.NotReadySince = "is not Ready", m.now.Add(-time.Hour) })
			two := intstr.FromInt32(2)
			m.changePool("worker", func(p *rollout.Pool) {
				p.MaxUnavailable, p.Rollout.Taken, p.Rollout.Down = &two, []string{"n0"}, []string{"n0"}
			})
		}, "n3", "waits for n0, which is not Ready; n3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := small()
			c.change(m)
			f, _ := m.access("").Fleet(t.Context())
			d := rollout.Decide(f).Pools[0]
			var gives []string
			for _, n := range d.Given {
				if n.Config != d.Rollout.Target {
					t.Errorf("%s gets %s, and the target is %s", n.Name, n.Config, d.Rollout.Target)
				}
				gives = append(gives, n.Name)
			}
			if got := strings.Join(gives, " "); got != c.gives || !strings.Contains(d.Rollout.Waiting, c.waiting) {
				t.Errorf("gives to %q, want %q; waits: %q", got, c.gives, d.Rollout.Waiting)
			}
			i := slices.IndexFunc(d.Status.Conditions, func(c metav1.Condition) bool { return c.Type == api.PoolNodeDegraded })
			if says := d.Status.Conditions[i]; !strings.Contains(says.Message, c.failing) || (c.failing != "") != (says.Status == api.True) {
				t.Errorf("NodeDegraded is %s: %q, want %q", says.Status, says.Message, c.failing)
			}
		})
	}
}

// TestHeld: what waits because of the pool's own settings is told from what waits for something to get better.
func TestHeld(t *testing.T) {
	pool := func(change func(p *rollout.Pool)) func(m *memory) {
		return func(m *memory) { m.changePool("worker", change) }
	}
	for name, c := range map[string]struct {
		change func(m *memory)
		held   bool
	}{
		"nothing":      {func(*memory) {}, false},
		"paused":       {pool(func(p *rollout.Pool) { p.Paused = true }), true},
		"window":       {pool(func(p *rollout.Pool) { p.Spec.Window = "13:00-14:00 UTC" }), true},
		"wrong window": {pool(func(p *rollout.Pool) { p.Spec.Window = "noon" }), false},
		"no such pool": {pool(func(p *rollout.Pool) { p.Spec.After = []string{"x"} }), false},
		"another pool": {func(m *memory) {
			m.addNode("i0", "rendered-infra-0", map[string]string{role("infra"): ""})
			m.changePool("worker", func(p *rollout.Pool) { p.Spec.After = []string{"infra"} })
		}, true},
		"soak time": {func(m *memory) {
			m.change("n3", func(n *rollout.Node) {
				n.Annotations[api.DesiredConfig], n.Annotations[api.CurrentConfig] = "rendered-worker-2", "rendered-worker-2"
				n.System = &api.JudgedSystem{Current: "rendered-worker-2"}
			})
			m.changePool("worker", func(p *rollout.Pool) {
				p.Spec.Canary, p.Spec.Soak = 1, metav1.Duration{Duration: time.Hour}
			})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := small()
			c.change(m)
			f, _ := m.access("").Fleet(t.Context())
			if d := rollout.Decide(f).Pools[0]; d.Held != c.held {
				t.Errorf("held: %t, waits: %q", d.Held, d.Rollout.Waiting)
			}
		})
	}
}
