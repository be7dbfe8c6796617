package node_test

import (
	"slices"
	"testing"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// TestDrift: a node at rest is reported as soon as somebody changes its machine by hand. It is Done again as soon as
// that is taken back, also for an agent that came later.
func TestDrift(t *testing.T) {
	const soon = 10 * time.Second
	for name, restart := range map[string]bool{"one agent": false, "another agent": true} {
		t.Run(name, func(t *testing.T) {
			w := nodeagent.New()
			w.Metrics = &node.Metrics{}
			var changed time.Time
			reached := func(state string) func() bool { return func() bool { return w.State() == state } }
			changes := func(drifted bool, until func() bool) func() bool {
				return func() bool {
					if !until() || !w.Machine.Watching {
						return false
					}
					w.Machine.Drifted, changed = drifted, w.Clock
					return true
				}
			}
			told := func(state string) func() bool {
				return func() bool {
					if w.State() == state && w.Clock.Sub(changed) > soon {
						t.Errorf("%s after %s", state, w.Clock.Sub(changed))
					}
					if set := gauges(t, w); w.State() == api.StateDegraded && state == api.StateDegraded && len(set) != 2 {
						t.Errorf("Degraded, with the metrics %q", set)
					}
					return w.State() == state
				}
			}
			steps := []func() bool{changes(true, reached(api.StateDone)), told(api.StateDegraded), changes(false, reached(api.StateDegraded)), told(api.StateDone)}
			run := func(settled func() bool) {
				t.Helper()
				if _, err := w.Run(settled); err != nil {
					t.Fatal(err)
				}
			}
			if restart {
				for _, step := range steps {
					run(step)
				}
			} else {
				run(func() bool {
					for len(steps) > 0 && steps[0]() {
						steps = steps[1:]
					}
					return len(steps) == 0
				})
			}
			run(func() bool { return len(gauges(t, w)) == 0 })
			for _, event := range []string{api.EventDrift, api.EventDone} {
				if !slices.Contains(w.Events, event) {
					t.Errorf("no event %s: %q", event, w.Events)
				}
			}
			if w.Evictions+w.Machine.Boots > 0 || len(w.Violations) > 0 {
				t.Errorf("drift changes the machine: %s", w)
			}
		})
	}
}

// TestDriftWithoutEnd: a file that something changes and changes back without end costs a comparison a minute.
func TestDriftWithoutEnd(t *testing.T) {
	w := nodeagent.New()
	began := w.Clock
	_, err := w.Run(func() bool {
		w.Machine.Drifted = !w.Machine.Drifted
		return w.Clock.Sub(began) >= 20*time.Minute
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := w.Machine.Verified; n < 20 || n > 36 {
		t.Errorf("%d comparisons in 20 minutes", n)
	}
}
