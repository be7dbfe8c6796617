package node_test

import (
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// TestAnyTime: somebody else does something to the node before any call of a rollout, and nothing of it
// is lost. An administrator's cordon survives, unless the agent had cordoned the node already, which
// cannot be told from one.
func TestAnyTime(t *testing.T) {
	cordoned := false
	for name, s := range map[string]story{
		"cordon": {
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
			before: func(w *nodeagent.World, _ int, _ string) {
				cordoned = !w.Node.Unschedulable
				w.Change(func(n *node.Node) { n.Unschedulable = true })
			},
		},
		"uncordon": {
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, changes: true,
			before: func(w *nodeagent.World, _ int, name string) {
				late := w.Note(api.PostConfigAction) == api.ActionReboot && (name != "get node" || w.Machine.Running()) // the agent has looked for the last time
				if !late {
					w.Change(func(n *node.Node) { n.Unschedulable = false })
				}
			},
		},
		"another target": {
			want: "reboot", state: api.StateDone, current: "second", changes: true,
			before: func(w *nodeagent.World, _ int, _ string) { w.Want("second") },
		},
		"no target": {
			want: "reboot", state: api.StateDone, current: "reboot", changes: true,
			before: func(w *nodeagent.World, _ int, _ string) {
				w.Change(func(n *node.Node) { delete(n.Annotations, api.DesiredConfig) })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := story{want: s.want, state: s.state, current: "reboot"}
			_, calls, _ := whole.run(nil)
			for at := 1; at <= calls; at++ {
				one := s
				one.before = func(w *nodeagent.World, call int, name string) {
					if call == at {
						s.before(w, call, name)
					}
				}
				w := one.world(nil)
				cordoned = false
				_, err := w.Run(func() bool {
					one.cordoned = cordoned
					switch name {
					case "no target":
						return w.Note(api.DesiredConfig) == "" && w.Note(api.CordonedFor) == ""
					case "another target":
						return w.Note(api.DesiredConfig) == "second" && one.settled(w)
					}
					return one.settled(w)
				})
				if err == nil {
					err = w.Idle(3)
				}
				wrong := one.check(w, false)
				if w.Node.Unschedulable != cordoned {
					wrong = append(wrong, "the cordon is not as it should be")
				}
				if err != nil || len(wrong) > 0 {
					t.Fatalf("before call %d: %v, %q: %s", at, err, wrong, w)
				}
			}
		})
	}
}
