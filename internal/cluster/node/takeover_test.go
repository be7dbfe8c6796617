package node_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// left makes a node one that another agent has left, with these annotations, and only these.
func left(w *nodeagent.World, cordoned bool, notes map[string]string) {
	w.Change(func(n *node.Node) {
		n.Unschedulable = cordoned
		n.Annotations = map[string]string{"other": "kept"}
		for name, value := range notes {
			n.Annotations[name] = value
		}
	})
	if cordoned {
		w.Pods = 0
	}
	w.States = nil
}

const (
	daemon    = "machine-config-daemon"
	firstBoot = "first-boot"
)

// takeovers are the stories of nodes that come with a system of which pivot knows nothing, or not all. The
// annotations are those of the machine-config operator at each point of its update.
func takeovers() map[string]story {
	adopted := func(w *nodeagent.World) bool { return w.Machine.RecordedBy == "pivot" }
	quiet := func(w *nodeagent.World) string {
		switch {
		case slices.Contains(w.States, api.StateDegraded):
			return "it was degraded"
		case slices.Contains(w.Events, api.EventCordon):
			return "it was cordoned"
		}
		return ""
	}
	silent := func(w *nodeagent.World) string {
		if len(w.States) > 0 && !slices.Equal(w.States, []string{api.StateDone}) {
			return "for the cluster it was not what it is"
		}
		return quiet(w)
	}
	byDaemon := func(current string, cordoned bool, notes map[string]string) func(w *nodeagent.World) {
		return func(w *nodeagent.World) {
			w.Machine = nodeagent.Machine{Current: current, Desired: current, Phase: "idle", RecordedBy: daemon}
			w.Policy.ByController = true
			left(w, cordoned, notes)
		}
	}
	done := map[string]string{api.DesiredConfig: "a", api.CurrentConfig: "a", api.StateOfNode: api.StateDone, api.Reason: "", api.PostConfigAction: "",
		api.DesiredDrain: "uncordon-a", api.LastAppliedDrain: "uncordon-a"}
	with := func(base map[string]string, more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{base, more} {
			for name, value := range m {
				all[name] = value
			}
		}
		return all
	}
	controller := func(w *nodeagent.World, _ int, _ string) { w.Controller() }
	updating := map[string]string{api.DesiredConfig: "reboot", api.CurrentConfig: "a", api.StateOfNode: api.StateWorking, api.Reason: ""}
	return map[string]story{
		"done": {prepare: byDaemon("a", false, done), want: "a", before: controller, state: api.StateDone, current: "a", begun: adopted, also: silent},
		"done, never updated": { // the annotations are those that a config server writes
			prepare: byDaemon("a", false, map[string]string{api.DesiredConfig: "a", api.CurrentConfig: "a", api.StateOfNode: api.StateDone}),
			want:    "a", before: controller, state: api.StateDone, current: "a", begun: adopted, also: silent,
		},
		"done, without a state": { // which means Done
			prepare: byDaemon("a", false, map[string]string{api.DesiredConfig: "a", api.CurrentConfig: "a"}),
			want:    "a", before: controller, state: api.StateDone, current: "a", begun: adopted, also: silent,
		},
		"done, without its record": {
			prepare: func(w *nodeagent.World) {
				byDaemon("a", false, done)(w)
				w.Machine.RecordedBy = ""
			},
			want: "a", before: controller, state: api.StateDone, current: "a", begun: adopted, also: silent,
		},
		"done, with the record of its first boot": {
			prepare: func(w *nodeagent.World) {
				byDaemon("a", false, done)(w)
				w.Machine.RecordedBy, w.Machine.Current = firstBoot, "live"
			},
			want: "a", before: controller, state: api.StateDone, current: "a", begun: adopted, also: silent,
		},
		"done, with an administrator's cordon": {
			prepare: func(w *nodeagent.World) { byDaemon("a", true, done)(w) },
			want:    "a", before: controller, state: api.StateDone, current: "a", cordoned: true, begun: adopted, also: silent,
		},
		"done, and not what it should be": { // which the daemon has not noticed
			prepare: func(w *nodeagent.World) {
				byDaemon("a", false, done)(w)
				w.Machine.Lacks = true
			},
			want: "a", before: controller, state: api.StateDegraded, current: "a",
			also: func(w *nodeagent.World) string {
				if !strings.Contains(w.Note(api.Reason), "needs a reboot (image: it is another one)") {
					return "the reason is " + w.Note(api.Reason)
				}
				return neverCordoned(w)
			},
		},
		"degraded by drift that is gone": {
			prepare: byDaemon("a", false, with(done, map[string]string{api.StateOfNode: api.StateDegraded, api.Reason: "content mismatch"})),
			want:    "a", before: controller, state: api.StateDone, current: "a", begun: adopted, also: quiet,
		},
		"wants another one": {
			prepare: byDaemon("a", false, done), want: "reboot", before: controller,
			state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
		},
		"wants another one, with an administrator's cordon": { // which the daemon's controller would end
			prepare: func(w *nodeagent.World) {
				byDaemon("a", true, done)(w)
				w.Policy.ByController = false
			},
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, cordoned: true,
		},
		"updating, waits for its drain": {
			prepare: func(w *nodeagent.World) {
				byDaemon("a", true, with(updating, map[string]string{api.DesiredDrain: "drain-reboot", api.LastAppliedDrain: "uncordon-a"}))(w)
				w.Pods = 2
			},
			want: "reboot", before: controller, state: api.StateDone, current: "reboot", boots: 1, evictions: 1, also: quiet,
		},
		"updating, waits for its drain, which the agent makes": {
			prepare: func(w *nodeagent.World) {
				byDaemon("a", true, with(updating, map[string]string{api.DesiredDrain: "drain-reboot", api.LastAppliedDrain: "uncordon-a"}))(w)
				w.Pods, w.Policy.ByController = 2, false
			},
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1, also: quiet,
		},
		"updating, drained": {
			prepare: byDaemon("a", true, with(updating, map[string]string{api.DesiredDrain: "drain-reboot", api.LastAppliedDrain: "drain-reboot"})),
			want:    "reboot", before: controller, state: api.StateDone, current: "reboot", boots: 1, also: quiet,
		},
		"updating, degraded by its drain": {
			prepare: func(w *nodeagent.World) {
				byDaemon("a", true, with(updating, map[string]string{api.StateOfNode: api.StateDegraded, api.Reason: "failed to drain node: n1 after 1 hour",
					api.DesiredDrain: "drain-reboot", api.LastAppliedDrain: "uncordon-a"}))(w)
				w.Pods = 2
			},
			want: "reboot", before: controller, state: api.StateDone, current: "reboot", boots: 1, evictions: 1, also: quiet,
		},
		"updating, unreconcilable, and the old one again": {
			prepare: byDaemon("a", false, with(done, map[string]string{api.StateOfNode: api.StateUnreconcilable, api.Reason: "ignition disks section contains changes"})),
			want:    "a", before: controller, state: api.StateDone, current: "a", begun: adopted, also: quiet,
		},
		"updating, drained, and the old one again": {
			prepare: byDaemon("a", true, with(updating, map[string]string{api.DesiredConfig: "a", api.DesiredDrain: "drain-reboot", api.LastAppliedDrain: "drain-reboot"})),
			want:    "a", before: controller, state: api.StateDone, current: "a", begun: adopted, also: quiet,
		},
		"rebooted, not finished": {
			prepare: byDaemon("reboot", true, with(updating, map[string]string{api.PostConfigAction: api.ActionReboot,
				api.DesiredDrain: "drain-reboot", api.LastAppliedDrain: "drain-reboot"})),
			want: "reboot", before: controller, state: api.StateDone, current: "reboot", also: quiet,
		},
		"rebooted, asks for the end of its drain": {
			prepare: byDaemon("reboot", true, with(updating, map[string]string{
				api.DesiredDrain: "uncordon-reboot", api.LastAppliedDrain: "drain-reboot"})),
			want: "reboot", before: controller, state: api.StateDone, current: "reboot", also: quiet,
		},
		"rebooted into its old system": { // its record was written before the reboot, which has lost the staged deployment
			prepare: func(w *nodeagent.World) {
				byDaemon("reboot", true, with(updating, map[string]string{api.StateOfNode: api.StateDegraded, api.Reason: "expected target osImageURL",
					api.PostConfigAction: api.ActionReboot, api.DesiredDrain: "drain-reboot", api.LastAppliedDrain: "drain-reboot"}))(w)
				w.Machine.Lacks = true
			},
			want: "reboot", before: controller, state: api.StateDone, current: "reboot", boots: 1, also: quiet,
		},
		"image mode": { // is not supported, and nothing is done to the node
			prepare: byDaemon("a", false, with(done, map[string]string{api.DesiredImage: "registry.example/os@sha256:1", api.CurrentImage: "registry.example/os@sha256:1"})),
			want:    "a", before: controller, state: api.StateDegraded, current: "a", also: neverCordoned,
		},
	}
}

// TestTakeovers runs each of them, and again with the agent killed, or the power cut, in each of its calls.
func TestTakeovers(t *testing.T) {
	for name, s := range takeovers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.sweep(t)
		})
	}
}

// TestJoining: a node with no annotations at all joins with the MachineConfig that its host has, if a
// cluster has rendered it, and once that is proven. Nothing is written to any other node.
func TestJoining(t *testing.T) {
	const mine = api.RenderedPrefix + "worker-1"
	for name, c := range map[string]struct {
		machine nodeagent.Machine
		joins   bool
		state   string
	}{
		"after its first boot":        {nodeagent.Machine{Current: mine, RecordedBy: firstBoot}, true, api.StateDone},
		"the daemon's":                {nodeagent.Machine{Current: mine, RecordedBy: daemon}, true, api.StateDone},
		"pivot's, registered again":   {nodeagent.Machine{Current: mine, RecordedBy: "pivot"}, true, api.StateDone},
		"not what it should be":       {nodeagent.Machine{Current: mine, RecordedBy: firstBoot, Lacks: true}, false, api.StateDegraded},
		"with an own MachineConfig":   {nodeagent.Machine{Current: "a", RecordedBy: "pivot"}, false, ""},
		"no MachineConfig":            {nodeagent.Machine{}, false, ""},
		"not an ostree host":          {nodeagent.Machine{NoOstree: true}, false, ""},
		"a host that cannot be asked": {nodeagent.Machine{Current: mine, RecordedBy: firstBoot, Silent: true}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := nodeagent.New()
			w.Configs[mine] = nodeagent.Config{}
			left(w, false, nil)
			w.Machine = c.machine
			before := w.Node.ResourceVersion
			settled := func() bool {
				if c.state == "" {
					return w.Requests["get node"] >= 5
				}
				return w.State() == c.state
			}
			if _, err := w.Run(settled); err != nil {
				t.Fatal(err)
			}
			if err := w.Idle(10); err != nil {
				t.Fatal(err)
			}
			want := ""
			if c.joins {
				want = mine
			}
			if w.Note(api.CurrentConfig) != want || w.Note(api.DesiredConfig) != want || w.State() != c.state || w.Machine.Boots != 0 || len(w.Violations) > 0 {
				t.Errorf("%s", w)
			}
			if c.state == "" && w.Node.ResourceVersion != before {
				t.Errorf("it was changed: %s", w)
			}
			if slices.Contains(w.Events, api.EventCordon) || c.joins && !slices.Equal(w.States, []string{api.StateDone}) {
				t.Errorf("states %q: %s", w.States, w)
			}
		})
	}
}

// TestAdopted: only pivot's own record says that all of a system was compared.
func TestAdopted(t *testing.T) {
	for by, want := range map[string]bool{"pivot": true, daemon: false, firstBoot: false, "": false} {
		s := hostpivot.Status{MachineConfig: &hostpivot.NamedConfigs{Current: &hostpivot.Named{Name: "a"}, RecordedBy: by}}
		if s.Adopted() != want {
			t.Errorf("%q: %v", by, s.Adopted())
		}
	}
	if (hostpivot.Status{}).Adopted() {
		t.Error("a host without a MachineConfig")
	}
}
