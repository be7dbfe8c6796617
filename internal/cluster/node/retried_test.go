package node_test

import (
	"testing"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// TestRetriedAcrossRestarts: what an administrator wants to be tried again is tried again, also if the agent is
// restarted before it gets so far, or the machine loses its power. What had failed before is not taken for its result.
// What fails then is reported again.
func TestRetriedAcrossRestarts(t *testing.T) {
	const config = "fails"
	for name, c := range map[string]struct {
		broken, mended nodeagent.Config
		try            time.Duration
		power          bool // it fails while the drain is waited for
	}{
		"an apply that failed":           {broken: nodeagent.Config{Reboot: true, Drain: true, ApplyFails: true}, mended: nodeagent.Config{Reboot: true, Drain: true}},
		"a trial that failed":            {broken: nodeagent.Config{Reboot: true, Drain: true, Differs: true}, mended: nodeagent.Config{Reboot: true, Drain: true}, try: time.Minute},
		"the same, and a power cut":      {broken: nodeagent.Config{Reboot: true, Drain: true, Differs: true}, mended: nodeagent.Config{Reboot: true, Drain: true}, try: time.Minute, power: true},
		"a trial that fails once more":   {broken: nodeagent.Config{Reboot: true, Drain: true, Differs: true}, mended: nodeagent.Config{Reboot: true, Drain: true, Differs: true}, try: time.Minute},
		"an apply that fails once more":  {broken: nodeagent.Config{Reboot: true, Drain: true, ApplyFails: true}, mended: nodeagent.Config{Reboot: true, Drain: true, ApplyFails: true}},
		"a machine that falls back once": {broken: nodeagent.Config{Reboot: true, Drain: true, FallsBack: true}, mended: nodeagent.Config{Reboot: true, Drain: true}},
	} {
		t.Run(name, func(t *testing.T) {
			w := nodeagent.New()
			w.Policy.Try = c.try
			w.Policy.DrainLimit = 24 * time.Hour
			w.Configs[config] = c.broken
			failed := func() bool { return w.Note(api.FailedConfig) == config && !w.Node.Unschedulable }
			w.Want(config)
			if _, err := w.Run(failed); err != nil {
				t.Fatal(err)
			}
			w.Configs[config], w.Forbidden = c.mended, "budget db"
			agent := w.Agent() // which knows of the failure
			for step := range 6 {
				if step == 3 {
					w.Change(func(n *node.Node) { delete(n.Annotations, api.FailedConfig) })
				}
				wait, err := agent.Step(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				w.Clock = w.Clock.Add(wait)
			}
			for range 10 { // agents that do not
				if err := w.Idle(10); err != nil {
					t.Fatal(err)
				}
				if failed() {
					t.Fatalf("it is not tried again: %s", w)
				}
				if c.power {
					w.PowerCut()
				}
			}
			w.Forbidden = ""
			again := c.mended.ApplyFails || c.mended.Differs
			if _, err := w.Run(func() bool { return failed() || w.State() == api.StateDone }); err != nil {
				t.Fatal(err)
			}
			if failed() != again {
				t.Errorf("failed %v, want %v: %s", failed(), again, w)
			}
			if _, there := w.Node.Annotations[api.Retried]; there {
				t.Errorf("it is still said to be tried again: %s", w)
			}
		})
	}
}
