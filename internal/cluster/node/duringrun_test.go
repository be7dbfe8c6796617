package node_test

import (
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/nodeagent"
)

// TestDuringARun: while a run continues, the node's objects say as much of the machine as before it. A download before
// its turn is neither stopped nor taken for a change. Pivot is asked once by each agent.
func TestDuringARun(t *testing.T) {
	for name, s := range map[string]story{
		"a change": stories()["image"],
		"a download before its turn": {
			prepare: func(w *nodeagent.World) { ask(w, "reboot") },
			want:    "a", state: api.StateDone, current: "a",
			before: func(w *nodeagent.World, _ int, name string) {
				if name == "stop" {
					w.Violated("the download is stopped")
				}
			},
			begun: func(w *nodeagent.World) bool { return w.System.Download != nil },
			also: func(w *nodeagent.World) string {
				if len(w.Updates) > 1 {
					return "an update is published"
				}
				return ""
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := s.world(nil)
			w.Machine.RunTicks = 100
			seen, ticks := 0, 0
			_, err := w.Run(func() bool {
				asked := w.Machine.Asked
				if w.Machine.Running() && w.Machine.Boots == 0 {
					if ticks++; asked != seen && ticks > 1 {
						t.Errorf("pivot is asked in look %d of a run", ticks)
					}
					if p := w.System; p.Config.Current != "a" || p.Booted == nil {
						t.Errorf("the NodeSystem says %+v during a run", p)
					}
				} else {
					ticks = 0
				}
				seen = asked
				return s.settled(w) && w.Machine.Told != nil && w.Machine.Told.State == s.state
			})
			if n := w.Requests["publish system"]; n > 40 { // two runs of 100 looks, and what is around them
				t.Errorf("the NodeSystem is written %d times", n)
			}
			if wrong := s.check(w, false); err != nil || len(wrong) > 0 {
				t.Errorf("%v, %q: %s", err, wrong, w)
			}
		})
	}
}
