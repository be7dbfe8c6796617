package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// passes runs passes of a controller at a fleet in which nothing else changes.
func (m *memory) passes(t *testing.T, number int) api.PoolRolloutStatus {
	t.Helper()
	for range number {
		if _, err := (rollout.Controller{Cluster: m.access(""), Decide: rollout.Decide}).Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return m.pools["worker"].Rollout
}

// TestFixReaches: a node that is down with its configuration, for whatever reason, is the first to get the pool's new
// one, with its slot or another one. A node that was dead before is not said to have failed with it.
func TestFixReaches(t *testing.T) {
	notReady := func(m *memory, n *rollout.Node) { n.Problem, n.NotReadySince = "is not Ready", m.now.Add(-time.Hour) }
	for name, wrong := range map[string]func(m *memory, n *rollout.Node){
		"not Ready": notReady,
		"not Ready, and its state is lost": func(m *memory, n *rollout.Node) {
			notReady(m, n)
			delete(n.Annotations, api.StateOfNode)
		},
		"pressure":            func(_ *memory, n *rollout.Node) { n.Problem = "has DiskPressure" },
		"a missing argument":  func(_ *memory, n *rollout.Node) { n.System.Missing = []string{"audit=1"} },
		"a difference":        func(_ *memory, n *rollout.Node) { n.System.Different = true },
		"a boot without word": func(_ *memory, n *rollout.Node) { n.System.BootID = "before" },
		"cordoned for it": func(_ *memory, n *rollout.Node) {
			n.Cordoned, n.Annotations[api.CordonedFor] = true, "rendered-worker-2"
		},
	} {
		for _, slot := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				m := small()
				m.changePool("worker", func(p *rollout.Pool) {
					p.Configuration.Name = "rendered-worker-3"
					p.Rollout = api.PoolRolloutStatus{Target: "rendered-worker-2"}
					if slot {
						p.Rollout.Taken = []string{"n2"}
					}
				})
				m.change("n2", func(n *rollout.Node) {
					n.Annotations[api.DesiredConfig], n.Annotations[api.CurrentConfig] = "rendered-worker-2", "rendered-worker-2"
					n.System = &api.JudgedSystem{Current: "rendered-worker-2", BootID: n.BootID}
					wrong(m, n)
				})
				m.passes(t, 3)
				m.now = m.now.Add(2 * time.Hour)
				s := m.passes(t, 2)
				for _, n := range m.nodes {
					if got := n.Annotations[api.DesiredConfig] == "rendered-worker-3"; got != (n.Name == "n2") {
						t.Errorf("%s has %s; %+v", n.Name, n.Annotations[api.DesiredConfig], s)
					}
				}
				if len(s.Failed) > 0 || !slices.Equal(s.Taken, []string{"n2"}) {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestOldFailure: a node that has failed gets the corrected configuration, and its failure does not count against that
// before its agent has begun. What it then says itself does.
func TestOldFailure(t *testing.T) {
	m := small()
	m.changePool("worker", func(p *rollout.Pool) {
		p.Configuration.Name, p.Spec.ReturnToLastGood = "rendered-worker-3", true
		p.Rollout = api.PoolRolloutStatus{Target: "rendered-worker-2", Taken: []string{"n2"}}
	})
	fails := func(with string) {
		m.change("n2", func(n *rollout.Node) {
			n.Annotations[api.StateOfNode], n.Annotations[api.FailedConfig], n.Annotations[api.Reason] = api.StateDegraded, with, "no such image"
		})
	}
	m.change("n2", func(n *rollout.Node) { n.Annotations[api.DesiredConfig] = "rendered-worker-2" })
	fails("rendered-worker-2")
	if s := m.passes(t, 4); m.nodes["n2"].Annotations[api.DesiredConfig] != "rendered-worker-3" || len(s.Failed) > 0 || s.GivenUp != "" {
		t.Errorf("it has %s; %+v", m.nodes["n2"].Annotations[api.DesiredConfig], s)
	}
	fails("rendered-worker-3")
	if s := m.passes(t, 2); s.GivenUp != "rendered-worker-3" || len(s.Failed) != 1 {
		t.Errorf("%+v", s)
	}
}

// TestStrays: nodes with agents that have found another system than they were given, as after a restore of etcd, get
// their configuration again by slots. They do so also as canaries, and do not stop the rollout. Only a node that then
// fails has failed.
func TestStrays(t *testing.T) {
	m := small()
	two := intstr.FromInt32(2)
	m.changePool("worker", func(p *rollout.Pool) {
		p.Configuration.Name, p.MaxUnavailable, p.Spec.Canary, p.Spec.ReturnToLastGood = "rendered-worker-1", &two, 1, true
	})
	stray := func(n *rollout.Node) {
		n.Annotations[api.StateOfNode], n.Annotations[api.FailedConfig], n.Annotations[api.Reason] = api.StateDegraded, "rendered-worker-1", "it has rendered-worker-2"
		n.System = &api.JudgedSystem{Current: "rendered-worker-2", BootID: n.BootID}
	}
	for name := range m.nodes {
		m.change(name, stray)
	}
	begun := func() (names []string) {
		for name, n := range m.nodes {
			if n.Annotations[api.FailedConfig] == "" && n.System.Current == "rendered-worker-2" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	s := m.passes(t, 3)
	if got := begun(); !slices.Equal(got, []string{"n3"}) || !slices.Equal(s.Taken, got) || s.GivenUp != "" || len(s.Failed) > 0 {
		t.Fatalf("%q have begun; %+v", got, s)
	}
	m.change("n3", func(n *rollout.Node) { // its agent begins, and ends
		n.Annotations[api.StateOfNode], n.Annotations[api.Reason] = api.StateDone, ""
		n.System = &api.JudgedSystem{Current: "rendered-worker-1", BootID: n.BootID}
	})
	s = m.passes(t, 3)
	if got := begun(); !slices.Equal(got, []string{"n1", "n2"}) || !slices.Equal(s.Taken, got) {
		t.Fatalf("%q have begun; %+v", got, s)
	}
	m.change("n2", func(n *rollout.Node) {
		n.Annotations[api.CurrentConfig], n.Annotations[api.FailedConfig], n.Annotations[api.Reason] = "rendered-worker-2", "rendered-worker-1", "no space"
	})
	s = m.passes(t, 3)
	if got := begun(); s.GivenUp != "rendered-worker-1" || len(s.Failed) != 1 || s.Failed[0].Name != "n2" || slices.Contains(got, "n0") {
		t.Errorf("%q have begun; %+v", got, s)
	}
	m = small()
	m.changePool("worker", func(p *rollout.Pool) { p.Configuration.Name, p.Paused = "rendered-worker-1", true })
	for name := range m.nodes {
		m.change(name, stray)
	}
	if s = m.passes(t, 3); len(begun()) > 0 || len(s.Taken) > 0 {
		t.Errorf("%q begin although the pool is paused: %+v", begun(), s)
	}
	m.changePool("worker", func(p *rollout.Pool) {
		p.Rollout.Taken, p.Rollout.Begun = []string{"n3"}, []api.BegunNode{{Name: "n3", Since: v1.NewTime(m.now.Add(-3 * time.Hour))}}
	})
	if s = m.passes(t, 3); len(s.Taken) > 0 || len(s.Begun) > 0 {
		t.Errorf("n3, which has a slot and was given nothing for three hours, is in change: %+v", s)
	}
}

// TestAdopt: nodes that were never given a configuration are not updated. With adopt, each gets that of the pool when it
// has a slot. Zero of zero is not success.
func TestAdopt(t *testing.T) {
	m := small()
	for name := range m.nodes {
		m.change(name, func(n *rollout.Node) { n.Annotations, n.System = map[string]string{}, nil })
	}
	m.change("n0", func(n *rollout.Node) { n.Annotations[api.CurrentConfig] = "rendered-worker-1" })
	m.change("n1", func(n *rollout.Node) { n.Labels[api.AgentLabel] = "off" })
	state := func() string {
		var out []string
		p := m.pools["worker"]
		for _, c := range p.Status.Conditions {
			if c.Status == api.True {
				out = append(out, c.Type)
			}
		}
		var given []string
		for name, n := range m.nodes {
			if n.Annotations[api.DesiredConfig] != "" {
				given = append(given, name)
			}
		}
		slices.Sort(given)
		return fmt.Sprint(p.Status.UpdatedMachineCount, "/", p.Status.MachineCount, out, given, p.Rollout.Taken, ": ", p.Rollout.Waiting)
	}
	m.passes(t, 2)
	if got := state(); got != "0/2 [Updating] [] []: 2 nodes are not taken in: set spec.adopt of the PoolRollout: n2; n3" {
		t.Error(got)
	}
	m.changeRollout("worker", func(p *rollout.Pool) { p.Spec.Adopt = true })
	m.passes(t, 3)
	if got := state(); got != "0/2 [Updating] [n3] [n3]: waits for n3, which is without a state (at most 1 unavailable at a time)" {
		t.Error(got)
	}
	for _, name := range []string{"n3", "n2"} {
		m.change(name, func(n *rollout.Node) {
			n.Annotations[api.CurrentConfig], n.Annotations[api.StateOfNode] = "rendered-worker-2", api.StateDone
			n.System = &api.JudgedSystem{Current: "rendered-worker-2", BootID: n.BootID}
		})
		m.passes(t, 3)
	}
	if got := state(); got != "2/2 [Updated] [n2 n3] []: " {
		t.Error(got)
	}
}

// TestNoNodes: a pool without nodes is no success, and says what it lacks. Other pools do not wait for it.
func TestNoNodes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *memory)
		want   string
	}{
		"no node has the label": {func(m *memory) {
			m.changePool("worker", func(p *rollout.Pool) { p.Selector.MatchLabels = map[string]string{"a": "b"} })
		},
			"[] false NoNodes: has no nodes: label nodes as spec.nodeSelector of the pool says"},
		"another pool has all": {func(m *memory) {
			m.addPool("infra", "rendered-infra-1")
			for name := range m.nodes {
				m.change(name, func(n *rollout.Node) { n.Labels[role("infra")] = "" })
			}
		}, "[] false NoNodes: has no nodes: label nodes as spec.nodeSelector of the pool says"},
		"all are left alone": {func(m *memory) {
			for name := range m.nodes {
				m.change(name, func(n *rollout.Node) { n.Annotations, n.Labels[api.AgentLabel] = map[string]string{}, "off" })
			}
		}, "[] false NoNodes: has no other nodes: 4 nodes are without a desired configuration: n0; n1; n2 and 1 more"},
		"nothing is rendered": {func(m *memory) { m.changePool("worker", func(p *rollout.Pool) { p.Configuration.Name = "" }) },
			"[Updating] false NotRendered: waits until a MachineConfig is rendered for the pool"},
		"nothing is rendered, and all are to be taken in": {func(m *memory) {
			m.changePool("worker", func(p *rollout.Pool) { p.Configuration.Name = "" })
			for name := range m.nodes {
				m.change(name, func(n *rollout.Node) { n.Annotations, n.System = map[string]string{}, nil })
			}
			m.changeRollout("worker", func(p *rollout.Pool) { p.Spec.Adopt = true })
		}, "[Updating] false NotRendered: waits until a MachineConfig is rendered for the pool"},
		"nothing is rendered, and none is taken in": {func(m *memory) {
			m.changePool("worker", func(p *rollout.Pool) { p.Configuration.Name = "" })
			for name := range m.nodes {
				m.change(name, func(n *rollout.Node) { n.Annotations, n.System = map[string]string{}, nil })
			}
		}, "[Updating] false NotRendered: waits until a MachineConfig is rendered for the pool"},
		"nothing is rendered, and no node has the label": {func(m *memory) {
			m.changePool("worker", func(p *rollout.Pool) { p.Configuration.Name, p.Selector.MatchLabels = "", map[string]string{"a": "b"} })
		}, "[] false NotRendered: waits until a MachineConfig is rendered for the pool"},
	} {
		t.Run(name, func(t *testing.T) {
			m := small()
			c.change(m)
			m.addPool("other", "rendered-other-1")
			m.addNode("o0", "rendered-other-2", map[string]string{role("other"): ""})
			m.changePool("other", func(p *rollout.Pool) { p.Spec.After = []string{"worker"} })
			for range 3 {
				_, _ = (rollout.Controller{Cluster: m.access(""), Decide: rollout.Decide}).Pass(t.Context()) // moved nodes are fenced
			}
			p, out := m.pools["worker"], []string{}
			for _, c := range p.Status.Conditions {
				if c.Status == api.True {
					out = append(out, c.Type)
				}
			}
			complete := meta.FindStatusCondition(p.Rollout.Conditions, api.RolloutComplete)
			if got := fmt.Sprint(out, complete.Status == v1.ConditionTrue, " ", complete.Reason, ": ", p.Rollout.Waiting); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if waits := strings.Contains(m.pools["other"].Rollout.Waiting, "waits for the pool"); waits != strings.Contains(c.want, "NotRendered") {
				t.Errorf("who comes after it: %s", m.pools["other"].Rollout.Waiting)
			}
		})
	}
}

// TestNamesAreNotReported: what all nodes report is no last good configuration unless the controller has given it.
func TestNamesAreNotReported(t *testing.T) {
	for _, name := range []string{"rendered-master-1", "rendered-worker-9", "rendered-worker-1"} {
		m := small()
		m.changePool("worker", func(p *rollout.Pool) { p.Rollout.Target = "rendered-worker-1" })
		for each := range m.nodes {
			m.change(each, func(n *rollout.Node) {
				n.Annotations[api.DesiredConfig], n.Annotations[api.CurrentConfig], n.System = name, name, nil
			})
		}
		f, _ := m.access("").Fleet(t.Context())
		if s := rollout.Decide(f).Pools[0].Rollout; (s.LastGood == name) != (name == "rendered-worker-1") {
			t.Errorf("%s: the last good one is %q", name, s.LastGood)
		}
	}
}
