package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// pass runs one pass of a controller.
func (m *memory) pass(t *testing.T) {
	t.Helper()
	if _, err := (rollout.Controller{Cluster: m.access(""), Decide: rollout.Decide}).Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestLate: a node that is in change for longer than the limit is named, by the sentence, the condition and one event. The
// next node gets its slot only if the pool says so, and never in the pool master. Another target begins anew.
func TestLate(t *testing.T) {
	for name, c := range map[string]struct {
		pool  string
		spec  api.PoolRolloutSpec
		after time.Duration
		taken string
		names string // a part of the sentence
	}{
		"not yet":                    {"worker", api.PoolRolloutSpec{PassSlotOn: true}, 119 * time.Minute, "n0", "waits for n0, which is Working (at most"},
		"it keeps its slot":          {"worker", api.PoolRolloutSpec{}, 121 * time.Minute, "n0", "waits for n0, which is Working, for more than 2h0m0s (at most"},
		"it passes its slot on":      {"worker", api.PoolRolloutSpec{PassSlotOn: true}, 121 * time.Minute, "n1", "n0, which is Working, for more than 2h0m0s"},
		"a shorter limit":            {"worker", api.PoolRolloutSpec{PassSlotOn: true, WorkingLimit: metav1.Duration{Duration: time.Minute}}, 2 * time.Minute, "n1", "more than 1m0s"},
		"nodes of the control plane": {"master", api.PoolRolloutSpec{PassSlotOn: true}, 121 * time.Minute, "n0", "more than 2h"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			m.addPool(c.pool, "rendered-"+c.pool+"-2")
			for i := range 3 {
				m.addNode(fmt.Sprintf("n%d", i), "rendered-"+c.pool+"-1", map[string]string{role(c.pool): ""})
			}
			m.changeRollout(c.pool, func(p *rollout.Pool) { p.Spec = c.spec })
			m.pass(t)
			m.change("n0", func(n *rollout.Node) { n.Annotations[api.StateOfNode] = api.StateWorking })
			m.pass(t)
			m.now = m.now.Add(c.after)
			events := m.events
			for range 3 {
				m.pass(t)
			}
			r, status := m.pools[c.pool].Rollout, m.pools[c.pool].Status
			if got := strings.Join(r.Taken, " "); got != c.taken || !strings.Contains(r.Waiting, c.names) {
				t.Errorf("slots: %s; waits: %q", got, r.Waiting)
			}
			late := strings.Contains(c.names, "more than")
			degraded := slices.ContainsFunc(status.Conditions, func(c metav1.Condition) bool {
				return c.Type == api.PoolNodeDegraded && c.Status == api.True && strings.Contains(c.Message, "n0")
			})
			if degraded != late || late != (m.events > events) {
				t.Errorf("named: %v; %d events", degraded, m.events-events)
			}
			m.changePool(c.pool, func(p *rollout.Pool) { p.Configuration.Name = "rendered-" + c.pool + "-3" })
			m.pass(t)
			if r := m.pools[c.pool].Rollout; slices.ContainsFunc(r.Begun, func(b api.BegunNode) bool { return b.Late }) {
				t.Errorf("with another target: %+v", r.Begun)
			}
		})
	}
}

// TestImpatient: a health check that has less patience than nodes of the pool have needed is named. It must be about these
// nodes, and the rollout must wait for something.
func TestImpatient(t *testing.T) {
	for name, c := range map[string]struct {
		check rollout.HealthCheck
		named bool
	}{
		"of these nodes":      {rollout.HealthCheck{Name: "NodeHealthCheck a", After: 5 * time.Minute, Selector: labels.Everything()}, true},
		"with more patience":  {rollout.HealthCheck{Name: "NodeHealthCheck a", After: 10 * time.Minute, Selector: labels.Everything()}, false},
		"of other nodes":      {rollout.HealthCheck{Name: "NodeHealthCheck a", After: time.Minute, Selector: labels.Nothing()}, false},
		"of their machines":   {rollout.HealthCheck{Name: "MachineHealthCheck a", After: time.Minute, Selector: labels.Nothing(), Machines: true}, true},
		"without a condition": {rollout.HealthCheck{Name: "NodeHealthCheck a", Selector: labels.Everything()}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := small()
			m.pass(t)
			m.change("n3", func(n *rollout.Node) {
				n.Away, n.Annotations["cluster.x-k8s.io/machine"] = 7*time.Minute, "m"
			})
			f, _ := m.access("").Fleet(t.Context())
			f.HealthChecks = []rollout.HealthCheck{c.check}
			d := rollout.Decide(f).Pools[0].Rollout
			if got := strings.Contains(d.Waiting, c.check.Name+" acts on nodes that are not Ready for "); got != c.named || d.LongestAbsence.Duration != 7*time.Minute {
				t.Errorf("%q, %v", d.Waiting, d.LongestAbsence)
			}
		})
	}
}

// TestPending: nodes that are still to change have the taint, until they have changed, the pool is shut for ten minutes, or they
// are in no pool. A node that changes keeps it until it is healthy.
func TestPending(t *testing.T) {
	m := small()
	marked := func() (names string) {
		m.pass(t)
		m.pass(t)
		for i := range 4 {
			if n := fmt.Sprintf("n%d", i); len(m.nodes[n].Taints) > 0 {
				names += n + " "
			}
		}
		return names
	}
	expect := func(when, want string) {
		t.Helper()
		if got := marked(); got != want {
			t.Errorf("%s: %s", when, got)
		}
	}
	m.changePool("worker", func(p *rollout.Pool) { p.Paused = true })
	expect("paused", "")
	m.changePool("worker", func(p *rollout.Pool) { p.Paused = false })
	expect("in a rollout", "n0 n1 n2 n3 ")
	m.change("n3", func(n *rollout.Node) {
		n.Annotations[api.CurrentConfig], n.System = "rendered-worker-2", &api.JudgedSystem{Current: "rendered-worker-2", BootID: n.BootID}
	})
	expect("n3 has changed", "n0 n1 n2 ")
	m.change("n2", func(n *rollout.Node) {
		n.Annotations[api.StateOfNode], n.Annotations[api.Reason] = api.StateDegraded, "no"
	})
	expect("n2 has failed", "n0 n1 n2 ")
	m.now = m.now.Add(10*time.Minute - time.Second)
	expect("n2 has failed for less than ten minutes", "n0 n1 n2 ")
	m.now = m.now.Add(time.Second)
	expect("n2 has failed for ten minutes", "")
	m.change("n2", func(n *rollout.Node) { n.Annotations[api.StateOfNode] = api.StateWorking })
	expect("it is tried again", "n0 n1 n2 ")
	m.changePool("worker", func(p *rollout.Pool) { p.Paused = true })
	f, _ := m.access("").Fleet(t.Context())
	if next := rollout.Decide(f).Next; next.IsZero() || next.After(m.now.Add(10*time.Minute)) {
		t.Errorf("paused: looks again at %s", next)
	}
	expect("paused again", "n0 n1 n2 ")
	m.now = m.now.Add(-time.Hour)
	expect("paused again, and the clock is set back", "")
	m.now = m.now.Add(2 * time.Hour)
	m.changePool("worker", func(p *rollout.Pool) { p.Paused = false })
	expect("it continues", "n0 n1 n2 ")
	m.change("n0", func(n *rollout.Node) { delete(n.Labels, role("worker")) })
	expect("n0 is in no pool", "n1 n2 ")
}

// TestClockSetBack: a record of when something began may be in the future, since a clock was set back or another controller's
// is ahead. It holds nothing up for longer than the time that it is about.
func TestClockSetBack(t *testing.T) {
	const ahead = 30 * 24 * time.Hour
	future := metav1.NewTime(newMemory().now.Add(ahead))
	done := func(m *memory, names ...string) {
		for _, name := range names {
			m.change(name, func(n *rollout.Node) {
				n.Annotations[api.DesiredConfig], n.Annotations[api.CurrentConfig] = "rendered-worker-2", "rendered-worker-2"
				n.System = &api.JudgedSystem{Current: "rendered-worker-2", BootID: n.BootID}
			})
		}
	}
	for name, c := range map[string]struct {
		begin func(m *memory)
		after time.Duration
		want  func(r api.PoolRolloutStatus) bool
	}{
		"the soak time": {func(m *memory) {
			done(m, "n3")
			m.changeRollout("worker", func(p *rollout.Pool) {
				p.Spec.Canary, p.Spec.Soak.Duration, p.Rollout.Target, p.Rollout.CanariesSince = 1, time.Hour, "rendered-worker-2", &future
			})
		}, time.Hour, func(r api.PoolRolloutStatus) bool { return len(r.Taken) == 1 }},
		"a download without an answer": {func(m *memory) {
			m.changeRollout("worker", func(p *rollout.Pool) {
				one := intstr.FromInt32(1)
				p.Paused, p.Spec.ParallelDownloads, p.Rollout.Target = true, &one, "rendered-worker-2"
				p.Rollout.Downloads = []api.NodeDownload{{Name: "n0", Since: future}}
			})
		}, time.Hour, func(r api.PoolRolloutStatus) bool { return len(r.Downloads) == 2 && r.Downloads[0].Failure != "" }},
		"a download that has failed": {func(m *memory) {
			m.changeRollout("worker", func(p *rollout.Pool) {
				one := intstr.FromInt32(1)
				p.Paused, p.Spec.ParallelDownloads, p.Rollout.Target = true, &one, "rendered-worker-2"
				p.Rollout.Downloads = []api.NodeDownload{{Name: "n0", Since: future, Failure: "cannot pull"}}
			})
		}, time.Hour, func(r api.PoolRolloutStatus) bool {
			return !slices.ContainsFunc(r.Downloads, func(d api.NodeDownload) bool { return d.Failure == "cannot pull" })
		}},
		"a Job that nobody ends": {func(m *memory) {
			m.jobs["ops/j"] = rollout.JobState{Exists: true}
			m.changeRollout("worker", func(p *rollout.Pool) {
				p.Spec.Hooks.BeforeDrain = &api.HookReference{Namespace: "ops", Name: "prepare"}
				p.Rollout.Target, p.Rollout.Taken = "rendered-worker-2", []string{"n3"}
				p.Rollout.Hooks = []api.HookRun{{Name: "n3", When: api.BeforeDrain, Config: "rendered-worker-2", Job: "ops/j", Since: future}}
			})
		}, 12 * time.Minute, func(r api.PoolRolloutStatus) bool {
			return strings.Contains(r.Waiting, "it has not ended within 10m0s")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := small()
			m.order = []string{"worker"}
			c.begin(m)
			m.passes(t, 2)
			if c.want(m.pools["worker"].Rollout) {
				t.Errorf("at once: %+v", m.pools["worker"].Rollout)
			}
			m.now = m.now.Add(c.after)
			if r := m.passes(t, 3); !c.want(r) {
				t.Errorf("%s later: %+v", c.after, r)
			}
		})
	}
}
