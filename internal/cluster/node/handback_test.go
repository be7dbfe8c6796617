package node_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/nodeagent"
)

// ofDaemon are the annotations of a node of the machine-config-daemon that has a MachineConfig.
func ofDaemon(current, desired string) map[string]string {
	return map[string]string{"other": "kept", api.CurrentConfig: current, api.DesiredConfig: desired, api.StateOfNode: api.StateDone, api.Reason: "", api.PostConfigAction: "",
		api.DesiredDrain: "uncordon-" + current, api.LastAppliedDrain: "uncordon-" + current}
}

// noted returns a preparation that changes the node's annotations.
func noted(notes map[string]string, cordoned bool) func(w *nodeagent.World) {
	return func(w *nodeagent.World) {
		w.Change(func(n *node.Node) {
			maps.Copy(n.Annotations, notes)
			n.Unschedulable = cordoned
		})
	}
}

// TestHandBack: a node of pivot in any state, except during a change, becomes one of the daemon's. So it is with the
// agent killed, or the power cut, in each call.
func TestHandBack(t *testing.T) {
	for name, c := range map[string]struct {
		prepare  func(w *nodeagent.World)
		desired  string
		cordoned bool
		done     node.Handed
	}{
		"done":                      {noted(nil, false), "a", false, node.Handed{Current: "a", Desired: "a"}},
		"an administrator's cordon": {noted(nil, true), "a", true, node.Handed{Current: "a", Desired: "a"}},
		"a trial for each change":   {noted(map[string]string{api.Try: "10m"}, false), "a", false, node.Handed{Current: "a", Desired: "a"}},
		"wants another one":         {noted(map[string]string{api.DesiredConfig: "reboot"}, false), "reboot", false, node.Handed{Current: "a", Desired: "reboot"}},
		"a change that has failed": {
			noted(map[string]string{api.DesiredConfig: "reboot", api.StateOfNode: api.StateDegraded, api.Reason: "no space", api.FailedConfig: "reboot", api.NeedsReplacement: "reboot",
				api.CordonedFor: "reboot", api.DrainStarted: "2026-01-01T00:00:00Z", api.DesiredDrain: "drain-reboot", api.LastAppliedDrain: "uncordon-a"}, true),
			"reboot", false, node.Handed{Current: "a", Desired: "reboot", Uncordoned: true},
		},
		"a second attempt whose drain is blocked": {
			noted(map[string]string{api.DesiredConfig: "reboot", api.StateOfNode: api.StateDegraded, api.Reason: "budget db", api.Attempt: "2 boot reboot"}, false),
			"reboot", false, node.Handed{Current: "a", Desired: "reboot"},
		},
		"unreconcilable": {
			noted(map[string]string{api.DesiredConfig: "bad", api.StateOfNode: api.StateUnreconcilable, api.Reason: "disks", api.FailedConfig: "bad"}, false),
			"bad", false, node.Handed{Current: "a", Desired: "bad"},
		},
		"an image that it has no more": {noted(map[string]string{api.CurrentImage: "registry.example/os@sha256:1"}, false), "a", false, node.Handed{Current: "a", Desired: "a"}},
		"not proven to the cluster":    {noted(map[string]string{api.CurrentConfig: "old", api.StateOfNode: api.StateWorking, api.PostConfigAction: api.ActionReboot}, false), "a", false, node.Handed{Current: "a", Desired: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(kills map[int]nodeagent.When) (w *nodeagent.World) {
				w = nodeagent.New()
				c.prepare(w)
				w.Kills = kills
				done, err := w.HandBack()
				want := ofDaemon("a", c.desired)
				if value, set := w.Node.Annotations[api.Try]; set {
					want[api.Try] = value
				}
				if err != nil || w.Machine.RecordedBy != daemon || w.Machine.Told != nil || w.Node.Unschedulable != c.cordoned || !maps.Equal(w.Node.Annotations, want) || len(w.Violations) > 0 {
					t.Fatalf("killed %v: %v: %s", kills, err, w)
				}
				if kills == nil && (done.Nothing || done.Current != c.done.Current || done.Desired != c.done.Desired || done.Uncordoned != c.done.Uncordoned) {
					t.Errorf("it says %+v", *done)
				}
				if kills == nil {
					before := w.Node.ResourceVersion
					if again, err := w.HandBack(); err != nil || !again.Nothing || w.Node.ResourceVersion != before {
						t.Errorf("once more: %+v, %v: %s", again, err, w)
					}
				}
				return w
			}
			calls := run(nil).Calls()
			for call := 1; call <= calls; call++ {
				for _, when := range []nodeagent.When{nodeagent.BeforeCall, nodeagent.AfterCall} {
					run(map[int]nodeagent.When{call: when})
				}
			}
		})
	}
}

// TestHandBackRefused: nothing changes if the daemon would not find what it expects.
func TestHandBackRefused(t *testing.T) {
	busy := func(verb hostpivot.Verb) func(w *nodeagent.World) {
		return func(w *nodeagent.World) { w.Machine.Run(hostpivot.Request{Verb: verb, Config: "reboot", ID: "1"}) }
	}
	for name, c := range map[string]struct {
		prepare func(w *nodeagent.World)
		want    string
	}{
		"a run":    {busy(hostpivot.Download), "a run of pivot is under way on the host: download reboot"},
		"a change": {noted(map[string]string{api.DesiredConfig: "reboot", api.StateOfNode: api.StateWorking}, false), "a change to reboot is under way"},
		"a commit": {func(w *nodeagent.World) {
			w.Machine.Pending, w.Machine.Desired, w.Machine.Phase = "reboot", "reboot", "committed"
		}, "the next boot of its host starts another deployment, for reboot"},
		"a trial":          {func(w *nodeagent.World) { w.Machine.Phase = "trial" }, "its host has a on trial"},
		"differences":      {func(w *nodeagent.World) { w.Machine.Lacks = true }, "cannot give this machine back"},
		"nobody's":         {func(w *nodeagent.World) { w.Change(func(n *node.Node) { delete(n.Annotations, api.DesiredConfig) }) }, "it has no annotation " + api.DesiredConfig},
		"not an ostree":    {func(w *nodeagent.World) { w.Machine.NoOstree = true }, "not booted from an ostree deployment"},
		"only first-boot":  {func(w *nodeagent.World) { w.Machine.RecordedBy = firstBoot }, "cannot give this machine back"},
		"no MachineConfig": {func(w *nodeagent.World) { w.Machine.RecordedBy = "" }, "cannot give this machine back"},
	} {
		t.Run(name, func(t *testing.T) {
			w := nodeagent.New()
			c.prepare(w)
			before, by := w.Node.ResourceVersion, w.Machine.RecordedBy
			_, err := w.HandBack()
			if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
			if w.Node.ResourceVersion != before || w.Machine.RecordedBy != by {
				t.Errorf("it changes: %s", w)
			}
		})
	}
}

// TestHandBackOfTheDaemons: a node that pivot has never managed is left alone, whatever its state is.
func TestHandBackOfTheDaemons(t *testing.T) {
	w := nodeagent.New()
	left(w, true, map[string]string{api.DesiredConfig: "reboot", api.CurrentConfig: "a", api.StateOfNode: api.StateWorking, api.DesiredDrain: "drain-reboot", api.LastAppliedDrain: "drain-reboot"})
	w.Machine = nodeagent.Machine{Current: "a", RecordedBy: daemon}
	before := w.Node.ResourceVersion
	if done, err := w.HandBack(); err != nil || !done.Nothing || w.Node.ResourceVersion != before {
		t.Errorf("%+v, %v: %s", done, err, w)
	}
}

// TestHandedText: the text of the result.
func TestHandedText(t *testing.T) {
	for want, h := range map[string]node.Handed{
		"nothing to do: the node is the machine-config-daemon's, and has a\n":        {Current: "a", Nothing: true},
		"the host and the node's annotations say that the node has a, and is Done\n": {Current: "a", Desired: "a"},
		"the host and the node's annotations say that the node has a, and is Done\nthe node is uncordoned\n" +
			"the machine lacks what only an installation can apply, which the daemon does not compare: disks, raid\n" +
			"when the machine-config-daemon starts, it updates the node to b\n": {Current: "a", Desired: "b", Uncordoned: true, LeftOut: []string{"disks", "raid"}},
	} {
		if got := h.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestRoundTrip: a node of the daemon is taken over, changed twice, and given back; then it is taken over
// again.
func TestRoundTrip(t *testing.T) {
	w := nodeagent.New()
	takeovers()["updating, drained"].prepare(w)
	w.Before = func(int, string) { w.Controller() }
	for _, config := range []string{"reboot", "live"} {
		w.Want(config)
		if _, err := w.Run(func() bool { return w.State() == api.StateDone && w.Note(api.CurrentConfig) == config }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.HandBack(); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(w.Node.Annotations, ofDaemon("live", "live")) || w.Node.Unschedulable || w.Machine.RecordedBy != daemon || w.Machine.Boots != 1 || len(w.Violations) > 0 {
		t.Errorf("%s", w)
	}
	if !slices.Contains(w.Events, api.EventHandedBack) {
		t.Errorf("events %q", w.Events)
	}
	if _, err := w.Run(func() bool { return w.Machine.RecordedBy == "pivot" && w.State() == api.StateDone }); err != nil {
		t.Fatal(err)
	}
	if w.Machine.Boots != 1 || slices.Contains(w.States, api.StateDegraded) || len(w.Violations) > 0 {
		t.Errorf("%s", w)
	}
}
