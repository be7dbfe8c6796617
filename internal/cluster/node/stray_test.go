package node_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// strays are the stories of hosts that have another system than their nodes say.
func strays() map[string]story {
	// said prepares a node that says that it has reboot, on a host that has second.
	said := func(notes map[string]string) func(w *nodeagent.World) {
		return func(w *nodeagent.World) {
			w.Machine.Current, w.Machine.Desired = "second", "second"
			w.Change(func(n *node.Node) {
				n.Annotations[api.CurrentConfig] = "reboot"
				for name, value := range notes {
					n.Annotations[name] = value
				}
			})
		}
	}
	gone := func(name string) func(w *nodeagent.World) {
		return func(w *nodeagent.World) {
			said(nil)(w)
			w.Change(func(n *node.Node) { delete(n.Annotations, name) })
		}
	}
	again := func(w *nodeagent.World, _ int, _ string) { // the controller gives it, once
		if w.Note(api.FailedConfig) != "" && w.Note("given") == "" {
			w.Change(func(n *node.Node) {
				delete(n.Annotations, api.FailedConfig)
				n.Annotations["given"] = "again"
			})
		}
	}
	reported := func(w *nodeagent.World) string {
		switch {
		case !strings.Contains(w.Note(api.Reason), "its host runs second"):
			return "it is not reported: " + w.Note(api.Reason)
		case w.Note(api.CurrentConfig) != "reboot", w.Note(api.FailedConfig) != "reboot":
			return "it is not what the controller looks for"
		case w.Requests["rehearse"] > 0, w.System.Download != nil:
			return "it has begun"
		}
		return neverCordoned(w) + published(w, "NodeDegraded", api.True, "its host runs second")
	}
	left := story{want: "reboot", state: api.StateDegraded, current: "second", also: reported}
	given := story{want: "reboot", before: again, state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
		begun: func(w *nodeagent.World) bool { return w.Note("given") != "" }}
	with := func(s story, prepare func(w *nodeagent.World)) story { s.prepare = prepare; return s }
	byHand := func(w *nodeagent.World) {
		said(nil)(w)
		w.Machine.Desired, w.Machine.Phase = "reboot", "undone"
	}
	fails := func(w *nodeagent.World) {
		said(nil)(w)
		w.Configs["reboot"] = nodeagent.Config{Reboot: true, Drain: true, ApplyFails: true}
	}
	return map[string]story{
		"an older state of the cluster":                 with(left, said(nil)),
		"the same, and its state is lost":               with(left, gone(api.StateOfNode)),
		"the same, when a difference was reported":      with(left, said(map[string]string{api.StateOfNode: api.StateDegraded, api.Reason: "file /etc/a: differs", api.FailedConfig: "reboot"})),
		"an older state, announced":                     with(left, said(map[string]string{api.PostConfigAction: api.ActionReboot})),
		"an old deployment, booted by hand":             with(left, byHand),
		"an older state, and given again":               with(given, said(nil)),
		"an old deployment, and given again":            with(given, byHand),
		"an older state, in which the change had begun": with(story{want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1}, said(map[string]string{api.StateOfNode: api.StateWorking})),
		"an older state, and a third one": with(story{want: "third", state: api.StateDone, current: "third", boots: 1, evictions: 1}, func(w *nodeagent.World) {
			said(nil)(w)
			w.Configs["third"] = nodeagent.Config{Reboot: true, Drain: true}
		}),
		"an older state, given again, and it fails": {prepare: fails, want: "reboot", before: again, state: api.StateDegraded, current: "second", evictions: 1,
			begun: func(w *nodeagent.World) bool {
				return w.Note("given") != "" && w.Note(api.FailedConfig) != "" && w.Note(api.CurrentConfig) == "second"
			}},
	}
}

// TestStrays: an agent disturbs its node only for a MachineConfig that the node was given, whatever is killed.
func TestStrays(t *testing.T) {
	for name, s := range strays() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.sweep(t)
		})
	}
}

// TestStrayIsMeasured: the metrics say that the host differs, and that something has failed.
func TestStrayIsMeasured(t *testing.T) {
	w := strays()["an older state of the cluster"].world(nil)
	w.Metrics = &node.Metrics{}
	if _, err := w.Run(func() bool { return w.State() == api.StateDegraded }); err != nil {
		t.Fatal(err)
	}
	if set := gauges(t, w); len(set) != 2 || !slices.Contains(w.Events, api.EventDrift) {
		t.Errorf("the metrics are %q, the events %q", set, w.Events)
	}
}
