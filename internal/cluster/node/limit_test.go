package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// restarted runs agents, each of which ends after a time, until an event or a time limit.
func restarted(t *testing.T, w *nodeagent.World, each, limit time.Duration, until func() bool) {
	t.Helper()
	end := w.Clock.Add(limit)
	agent, began := w.Agent(), w.Clock
	for !until() {
		if w.Clock.After(end) {
			t.Fatalf("not after %s: %s", limit, w)
		}
		wait, err := agent.Step(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if w.Clock = w.Clock.Add(wait); wait > 0 {
			w.Pass()
		}
		if w.Clock.Sub(began) >= each {
			agent, began = w.Agent(), w.Clock
		}
	}
}

// TestDrainLimit: rehearsals that fail make the node Degraded after the limit and at most one more try, however often
// the agent restarts. It is not so before, also if those for another MachineConfig have failed.
func TestDrainLimit(t *testing.T) {
	const limit, retry, slack = 20 * time.Minute, time.Minute, 30 * time.Second
	degraded := func(w *nodeagent.World) func() bool { return func() bool { return w.State() == api.StateDegraded } }
	for _, each := range []time.Duration{time.Hour, 15 * time.Minute, 4 * time.Minute, 61 * time.Second, 20 * time.Second} {
		t.Run(each.String(), func(t *testing.T) {
			w := nodeagent.New()
			w.Policy.DrainLimit, w.Forbidden = limit, "budget db"
			want := func(config string) {
				t.Helper()
				w.Want(config)
				began := time.Time{}
				restarted(t, w, each, time.Hour, func() bool {
					if began.IsZero() && api.BlockedFor(w.Note(api.DrainBlocked)) == config {
						began = w.Clock
					}
					return degraded(w)()
				})
				if after := w.Clock.Sub(began); after < limit || after > limit+retry+slack {
					t.Errorf("%s: Degraded %s after the first rehearsal", config, after)
				}
			}
			want("reboot")
			w.Want("second") // which has the same limit, from its beginning
			restarted(t, w, each, time.Hour, func() bool { return w.State() == api.StateWorking })
			want("second")
			w.Forbidden = ""
			restarted(t, w, time.Hour, time.Hour, func() bool { return w.Machine.Boots > 0 || w.Machine.Running() && w.Node.Unschedulable })
			if _, there := w.Node.Annotations[api.DrainBlocked]; there {
				t.Error("the rehearsals are still said to fail")
			}
		})
	}
}

// TestDrainLimitWithoutRecord: a record that is no time, or one in the future, as after the clock was corrected, does
// not make the node wait longer than the limit.
func TestDrainLimitWithoutRecord(t *testing.T) {
	for _, record := range []string{"yesterday reboot", "2027-01-01T00:00:00Z reboot", "2026-01-01T00:00:00Z"} {
		w := nodeagent.New()
		w.Policy.DrainLimit, w.Forbidden = 20*time.Minute, "budget db"
		w.Change(func(n *node.Node) { n.Annotations[api.DrainBlocked] = record })
		w.Want("reboot")
		restarted(t, w, 4*time.Minute, 25*time.Minute, func() bool { return w.State() == api.StateDegraded })
		if w.Since() < w.Policy.DrainLimit {
			t.Errorf("%q: Degraded after %s", record, w.Since())
		}
	}
}

// TestRebootLimit: a machine that does not reboot makes its node Degraded half an hour after the end of its run, and
// not before. The agent's restarts do not matter; the node stays so.
func TestRebootLimit(t *testing.T) {
	const limit, slack = 30 * time.Minute, time.Minute
	for _, each := range []time.Duration{2 * time.Hour, 29 * time.Minute, 4 * time.Minute} {
		t.Run(each.String(), func(t *testing.T) {
			w := nodeagent.New()
			w.Machine.Stuck = true
			w.Want("reboot")
			restarted(t, w, each, time.Hour, func() bool { return w.Machine.Pending != "" })
			ended := w.Clock
			restarted(t, w, each, 3*time.Hour, func() bool { return w.State() == api.StateDegraded })
			if after := w.Clock.Sub(ended); after < limit || after > limit+slack || !strings.Contains(w.Note(api.Reason), "has not rebooted within 30m") {
				t.Errorf("Degraded after %s: %s", after, w.Note(api.Reason))
			}
			later := w.Clock.Add(time.Hour)
			restarted(t, w, each, 2*time.Hour, func() bool {
				if w.State() != api.StateDegraded {
					t.Fatalf("it does not stay so: %s", w)
				}
				return w.Clock.After(later)
			})
		})
	}
}
