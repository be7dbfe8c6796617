package rollout_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// says has a node say that it cannot start a configuration, in a boot.
func (m *memory) says(name, config, boot string) {
	m.change(name, func(n *rollout.Node) {
		n.Annotations[api.CannotStart] = api.Cannot{Config: config, BootID: boot, Verdicts: "processor,tpm", Reason: "needs v3; name another image"}.String()
	})
}

// refuses has a node fail because it cannot start a configuration that it was given.
func (m *memory) refuses(name, config string) {
	m.says(name, config, m.nodes[name].BootID)
	m.change(name, func(n *rollout.Node) {
		n.Annotations[api.StateOfNode], n.Annotations[api.Reason], n.Annotations[api.FailedConfig] = api.StateDegraded, "cannot start", config
	})
}

// TestPassedOver: a node that cannot start the target gets none, holds no room, has not failed, and is named with reason and
// remedy. Its claim ends with the target, with its boot, and with the annotation.
func TestPassedOver(t *testing.T) {
	const old, target = "rendered-worker-1", "rendered-worker-2"
	named := "cannot start " + target + ": n3 (processor,tpm): needs v3; name another image"
	given := func(from string) func(m *memory) {
		return func(m *memory) {
			m.change("n3", func(n *rollout.Node) { n.Annotations[api.DesiredConfig] = target })
			m.changePool("worker", func(p *rollout.Pool) {
				p.Rollout.Taken, p.Rollout.Target = []string{"n3"}, target
				p.Rollout.Begun = []api.BegunNode{{Name: "n3", From: from, Since: metav1.Time{Time: m.now}}}
			})
			m.refuses("n3", target)
		}
	}
	for name, c := range map[string]struct {
		change  func(m *memory)
		gives   string // names of nodes with what they get
		taken   string
		waiting string // a part
	}{
		"before its turn":                  {func(m *memory) { m.says("n3", target, m.nodes["n3"].BootID) }, "n2=" + target, "n2", "; " + named},
		"with a slot, what it had":         {given(old), "n3=" + old, "n3", "; " + named},
		"its own name for it is no source": {given(""), "", "n3", "; " + named},
		"of another configuration":         {func(m *memory) { m.says("n3", "rendered-worker-9", m.nodes["n3"].BootID) }, "n3=" + target, "n3", "waits for n3"},
		"the target changes meanwhile": {func(m *memory) {
			given(old)(m)
			m.changePool("worker", func(p *rollout.Pool) { p.Configuration.Name = "rendered-worker-3" })
		}, "n3=rendered-worker-3", "n3", "waits for n3"},
		"in an earlier boot: after others":  {func(m *memory) { m.says("n3", target, "earlier") }, "n2=" + target, "n2", "waits for n2"},
		"in an earlier boot: the only one":  {func(m *memory) { m.says("n3", target, "earlier"); m.done(target, "n0", "n1", "n2") }, "n3=" + target, "n3", "waits for n3"},
		"paused":                            {func(m *memory) { given(old)(m); m.changePool("worker", func(p *rollout.Pool) { p.Paused = true }) }, "", "n3", named},
		"nothing that it is annotated with": {func(m *memory) { m.change("n3", func(n *rollout.Node) { n.Annotations[api.CannotStart] = "\n" }) }, "n3=" + target, "n3", "waits for n3"},
		"a canary: the next one is it": {func(m *memory) {
			m.says("n3", target, m.nodes["n3"].BootID)
			m.changePool("worker", func(p *rollout.Pool) { p.Spec.Canary = 1 })
		}, "n2=" + target, "n2", named},
		"only it is left": {func(m *memory) { m.says("n3", target, m.nodes["n3"].BootID); m.done(target, "n0", "n1", "n2") }, "", "", "waits for nodes that " + named},
		"taken in": {func(m *memory) {
			given("")(m)
			m.change("n3", func(n *rollout.Node) { delete(n.Annotations, api.CurrentConfig) })
		}, "n3=", "n3", named},
		"in change, whatever it claims": {func(m *memory) {
			given(old)(m)
			m.change("n3", func(n *rollout.Node) {
				n.Annotations[api.StateOfNode] = api.StateWorking
				delete(n.Annotations, api.FailedConfig)
			})
		}, "", "n3", named},
		"failed, too, before another boot": {func(m *memory) { given(old)(m); m.says("n3", target, "earlier") }, "", "n3", "stopped: n3 has failed"},
	} {
		t.Run(name, func(t *testing.T) {
			m := small()
			c.change(m)
			f, _ := m.access("").Fleet(t.Context())
			d := rollout.Decide(f).Pools[0]
			var gives []string
			for _, n := range d.Given {
				gives = append(gives, n.Name+"="+n.Config)
			}
			if got, taken := strings.Join(gives, " "), strings.Join(d.Rollout.Taken, " "); got != c.gives || taken != c.taken || !strings.Contains(d.Rollout.Waiting, c.waiting) {
				t.Errorf("gives %q, want %q; slots: %s, want %s; waits: %q", got, c.gives, taken, c.taken, d.Rollout.Waiting)
			}
			failed := slices.ContainsFunc(d.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == api.PoolUpdated && c.Status == api.True || c.Type == api.PoolNodeDegraded && c.Status == api.True
			})
			if failed != strings.HasPrefix(c.waiting, "stopped") || len(d.Rollout.Conditions) == 0 {
				t.Errorf("conditions: %+v", d.Status.Conditions)
			}
		})
	}
}

// done has nodes have a configuration.
func (m *memory) done(config string, names ...string) {
	for _, name := range names {
		m.change(name, func(n *rollout.Node) {
			n.Annotations[api.DesiredConfig], n.Annotations[api.CurrentConfig] = config, config
			n.System = &api.JudgedSystem{Current: config, BootID: n.BootID}
		})
	}
}

// TestAllPassedOver: if no node can start the target, each is asked once, one at a time, and gets back what it had. The pool
// has not stopped, given nothing up, and is not updated. It is, when the annotations are removed and the nodes can.
func TestAllPassedOver(t *testing.T) {
	const old, target = "rendered-worker-1", "rendered-worker-2"
	m := small()
	m.changePool("worker", func(p *rollout.Pool) { p.Spec.ReturnToLastGood, p.Spec.Canary = true, 2 })
	can, asked := false, map[string]int{}
	turn := func() {
		m.pass(t)
		disturbed := 0
		for name := range m.nodes {
			note := m.nodes[name].Annotations
			switch desired := note[api.DesiredConfig]; {
			case desired == note[api.CurrentConfig] && note[api.StateOfNode] == api.StateDone:
				continue
			case desired == target && note[api.FailedConfig] == target:
			case desired == target && !can:
				asked[name]++
				m.refuses(name, target)
			default:
				m.done(desired, name)
				m.change(name, func(n *rollout.Node) {
					n.Annotations[api.StateOfNode] = api.StateDone
					delete(n.Annotations, api.FailedConfig)
				})
			}
			if disturbed++; disturbed > 1 {
				t.Errorf("%d nodes have begun", disturbed)
			}
		}
	}
	for range 40 {
		turn()
	}
	r := m.pools["worker"].Rollout
	if len(asked) != 4 || asked["n0"]+asked["n1"]+asked["n2"]+asked["n3"] != 4 || len(r.Taken) > 0 || r.GivenUp != "" || !strings.HasPrefix(r.Waiting, "waits for nodes that cannot start "+target) {
		t.Errorf("asked %v, %+v", asked, r)
	}
	if s := m.pools["worker"].Status; s.UpdatedMachineCount != 0 || s.DegradedMachineCount != 0 || s.UnavailableMachineCount != 0 {
		t.Errorf("status: %+v", s)
	}
	for name := range m.nodes {
		if m.nodes[name].Annotations[api.DesiredConfig] != old {
			t.Errorf("%s: %v", name, m.nodes[name].Annotations)
		}
		m.change(name, func(n *rollout.Node) { delete(n.Annotations, api.CannotStart) })
	}
	can = true
	for range 40 {
		turn()
	}
	if r := m.pools["worker"].Rollout; r.Waiting != "" || m.pools["worker"].Status.UpdatedMachineCount != 4 {
		t.Errorf("then: %+v", r)
	}
}
