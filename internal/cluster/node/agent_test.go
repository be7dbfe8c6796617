package node_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// story is what happens to a node, and how it must end whatever is killed.
type story struct {
	prepare   func(w *nodeagent.World)
	want      string                                          // the MachineConfig that is desired
	before    func(w *nodeagent.World, call int, name string) // what others do before a call
	state     string                                          // at the end
	current   string                                          // of the machine, at the end
	boots     int
	evictions int
	cordoned  bool                          // at the end
	trial     bool                          // a power cut may end a trial, after which the old system serves
	attempts  bool                          // three boots into the old system end the change, and the old system serves
	retried   bool                          // it is tried again, and fails again
	changes   bool                          // evictions and boots depend on when something happens
	begun     func(w *nodeagent.World) bool // whether what the story is about has happened; nil: the end shows it
	also      func(w *nodeagent.World) string
}

func stories() map[string]story {
	cannot := func(w *nodeagent.World) {
		w.Configs["bad"] = nodeagent.Config{Reboot: true, Drain: true, CannotStart: []string{"processor", "drivers"}}
	}
	saysCannot := func(w *nodeagent.World) bool {
		c := api.CannotOf(w.Note(api.CannotStart))
		return c.Config == "bad" && c.BootID != "" && c.Has("processor") && c.Has("drivers") && strings.HasSuffix(c.Reason, "it needs x86-64-v3; another image")
	}
	passedOver := func(w *nodeagent.World) string {
		said := len(w.Kills) > 0 || slices.Contains(w.Events, api.EventCannotStart) || slices.Contains(w.Events, api.EventDownloadFailed)
		if !saysCannot(w) || !said {
			return fmt.Sprintf("it does not say that it cannot start the image: %q, %q", w.Note(api.CannotStart), w.Events)
		}
		return neverCordoned(w)
	}
	return map[string]story{
		"an image that the machine cannot start": {
			prepare: cannot, want: "bad", state: api.StateDegraded, current: "a", retried: true, also: passedOver,
		},
		"an image that the machine cannot start, and the old one again": {
			prepare: cannot, want: "bad", state: api.StateDone, current: "a", begun: saysCannot, also: passedOver,
			before: func(w *nodeagent.World, _ int, _ string) {
				if w.Note(api.DesiredConfig) == "bad" && saysCannot(w) {
					w.Want("a")
				}
			},
		},
		"another image than the one that the machine cannot start": {
			prepare: cannot, want: "bad", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
			before: func(w *nodeagent.World, _ int, _ string) {
				if w.Note(api.DesiredConfig) == "bad" && saysCannot(w) {
					w.Want("reboot")
				}
			},
			also: func(w *nodeagent.World) string { return w.Note(api.CannotStart) },
		},
		"a download before its turn of an image that the machine cannot start": {
			prepare: func(w *nodeagent.World) { cannot(w); ask(w, "bad") }, want: "a", state: api.StateDone, current: "a", begun: saysCannot, also: passedOver,
		},
		"image":           {want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1},
		"files":           {want: "live", state: api.StateDone, current: "live"},
		"a drain by rule": {want: "drain", state: api.StateDone, current: "drain", evictions: 1},
		"single node": {
			prepare: func(w *nodeagent.World) { w.Policy.SingleNode = true },
			want:    "reboot", state: api.StateDone, current: "reboot", boots: 1,
		},
		"by a controller": {
			prepare: func(w *nodeagent.World) { w.Policy.ByController = true },
			before:  func(w *nodeagent.World, _ int, _ string) { w.Controller() },
			want:    "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
		},
		"a slow controller": {
			prepare: func(w *nodeagent.World) { w.Policy.ByController = true },
			before: func(w *nodeagent.World, call int, _ string) {
				if call%5 == 0 {
					w.Controller()
				}
			},
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
		},
		"invalid": {
			prepare: func(w *nodeagent.World) {
				w.Configs["bad"] = nodeagent.Config{Reboot: true, Drain: true, Invalid: true}
			},
			want: "bad", state: api.StateUnreconcilable, current: "a", also: neverCordoned,
		},
		"only an installation can": {
			prepare: func(w *nodeagent.World) {
				w.Configs["disks"] = nodeagent.Config{Reboot: true, Drain: true, Installs: true}
			},
			want: "disks", state: api.StateUnreconcilable, current: "a",
			also: func(w *nodeagent.World) string {
				if w.Note(api.NeedsReplacement) != "" || slices.Contains(w.Events, api.EventNeedsReplacement) {
					return "another machine is asked for, which nobody wants"
				}
				return neverCordoned(w) + published(w, "UpdatePrepared", api.Unknown, "other disks")
			},
		},
		"another machine instead": {
			prepare: func(w *nodeagent.World) {
				w.Policy.Unsupported = node.UnsupportedReplace
				w.Configs["disks"] = nodeagent.Config{Reboot: true, Drain: true, Installs: true}
			},
			want: "disks", state: api.StateUnreconcilable, current: "a",
			also: func(w *nodeagent.World) string {
				last := w.Updates[len(w.Updates)-1].Conditions[2]
				if w.Note(api.NeedsReplacement) != "disks" || last.Type != "UpdatePrepared" || last.Reason != api.EventNeedsReplacement {
					return fmt.Sprintf("no other machine is asked for: %q, %+v", w.Note(api.NeedsReplacement), last)
				}
				return neverCordoned(w)
			},
		},
		"another MachineConfig instead of another machine": {
			prepare: func(w *nodeagent.World) {
				w.Policy.Unsupported = node.UnsupportedReplace
				w.Configs["disks"] = nodeagent.Config{Reboot: true, Drain: true, Installs: true}
			},
			want: "disks", state: api.StateDone, current: "live",
			before: func(w *nodeagent.World, _ int, _ string) {
				if w.Note(api.NeedsReplacement) == "disks" {
					w.Want("live")
				}
			},
			begun: func(w *nodeagent.World) bool { return w.Note(api.DesiredConfig) == "live" },
			also: func(w *nodeagent.World) string {
				if w.Note(api.NeedsReplacement) != "" {
					return "another machine is still asked for"
				}
				return neverCordoned(w)
			},
		},
		"no such MachineConfig": {want: "nowhere", state: api.StateDegraded, current: "a", also: neverCordoned},
		"a registry that comes back": {
			prepare: func(w *nodeagent.World) {
				w.Configs["slow"] = nodeagent.Config{Reboot: true, Drain: true, Unavailable: 2}
			},
			want: "slow", state: api.StateDone, current: "slow", boots: 1, evictions: 1,
		},
		"a commit that fails": {
			prepare: func(w *nodeagent.World) {
				w.Configs["full"] = nodeagent.Config{Reboot: true, Drain: true, ApplyFails: true}
			},
			want: "full", state: api.StateDegraded, current: "a", evictions: 1,
		},
		"a system that does not boot": {
			prepare: func(w *nodeagent.World) {
				w.Configs["panics"] = nodeagent.Config{Reboot: true, Drain: true, FallsBack: true}
			},
			want: "panics", state: api.StateDegraded, current: "a", boots: 3, evictions: 1, // three attempts
		},
		"a power cut in the commit": {
			prepare: func(w *nodeagent.World) {
				w.Configs["cut"] = nodeagent.Config{Reboot: true, Drain: true, Lost: 1}
			},
			want: "cut", state: api.StateDone, current: "cut", boots: 2, evictions: 1, attempts: true,
		},
		"a proof that fails": {
			prepare: func(w *nodeagent.World) {
				w.Configs["differs"] = nodeagent.Config{Reboot: true, Drain: true, Differs: true}
			},
			want: "differs", state: api.StateDegraded, current: "differs", boots: 1, evictions: 1, cordoned: true,
		},
		"a clock that jumps a year ahead": {
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, changes: true,
			before: func(w *nodeagent.World, call int, _ string) {
				if call == 15 {
					w.Clock = w.Clock.AddDate(1, 0, 0)
				}
			},
		},
		"a clock that jumps a year back": {
			prepare: func(w *nodeagent.World) {
				w.Configs["slow"] = nodeagent.Config{Reboot: true, Drain: true, Unavailable: 2}
			},
			want: "slow", state: api.StateDone, current: "slow", boots: 1, evictions: 1,
			before: func(w *nodeagent.World, call int, _ string) {
				if call == 15 {
					w.Clock = w.Clock.AddDate(-1, 0, 0)
				}
			},
		},
		"a trial": {
			prepare: func(w *nodeagent.World) { w.Change(func(n *node.Node) { n.Annotations[api.Try] = "10m" }) },
			want:    "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1, trial: true,
			also: func(w *nodeagent.World) string {
				if w.Machine.Trials == 0 {
					return "there was no trial"
				}
				return ""
			},
		},
		"a trial that fails": {
			prepare: func(w *nodeagent.World) {
				w.Policy.Try = 10 * time.Minute
				w.Configs["differs"] = nodeagent.Config{Reboot: true, Drain: true, Differs: true}
			},
			want: "differs", state: api.StateDegraded, current: "a", boots: 2, evictions: 1,
		},
		"a trial of a system that does not boot": {
			prepare: func(w *nodeagent.World) {
				w.Policy.Try = 10 * time.Minute
				w.Configs["panics"] = nodeagent.Config{Reboot: true, Drain: true, FallsBack: true}
			},
			want: "panics", state: api.StateDegraded, current: "a", boots: 1, evictions: 1,
		},
		"no trial, by the node's annotation": {
			prepare: func(w *nodeagent.World) {
				w.Policy.Try = 10 * time.Minute
				w.Change(func(n *node.Node) { n.Annotations[api.Try] = "0s" })
			},
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
			also: func(w *nodeagent.World) string {
				if w.Machine.Trials > 0 {
					return "there was a trial"
				}
				return ""
			},
		},
		"a trial of no known length": {
			prepare: func(w *nodeagent.World) { w.Change(func(n *node.Node) { n.Annotations[api.Try] = "soon" }) },
			want:    "reboot", state: api.StateUnreconcilable, current: "a", also: neverCordoned,
		},
		"image mode": {
			prepare: func(w *nodeagent.World) {
				w.Change(func(n *node.Node) { n.Annotations[api.DesiredImage] = "registry.example/os@sha256:0" })
			},
			want: "reboot", state: api.StateDegraded, current: "a", also: neverCordoned,
		},
		"an administrator's cordon": {
			prepare: func(w *nodeagent.World) { w.Change(func(n *node.Node) { n.Unschedulable = true }) },
			want:    "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1, cordoned: true,
		},
		"a budget": {
			prepare: func(w *nodeagent.World) { w.Blocked = "budget db" },
			want:    "reboot", state: api.StateDegraded, current: "a", retried: true,
			also: func(w *nodeagent.World) string {
				if !strings.Contains(w.Note(api.Reason), "budget db") {
					return "the reason does not name the budget"
				}
				return published(w, "NodeDegraded", api.True, "budget db")
			},
		},
		"what the policy forbids": {
			prepare: func(w *nodeagent.World) { w.Forbidden = "data in an emptyDir" },
			want:    "reboot", state: api.StateDegraded, current: "a",
			also: func(w *nodeagent.World) string {
				if !strings.Contains(w.Note(api.Reason), "data in an emptyDir") {
					return "the reason does not name it"
				}
				return neverCordoned(w)
			},
		},
		"a budget that is opened because the node is cordoned": { // as operators of databases do it
			prepare: func(w *nodeagent.World) { w.Blocked = "budget db" },
			before: func(w *nodeagent.World, _ int, _ string) {
				if w.Blocked = "budget db"; w.Node.Unschedulable {
					w.Blocked = ""
				}
			},
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1, also: cordonedOnce,
		},
		"a budget that comes late": {
			before: func(w *nodeagent.World, _ int, name string) {
				if name == "drain" {
					w.Blocked = "budget db"
				}
			},
			want: "reboot", state: api.StateDegraded, current: "a", retried: true,
		},
		"a budget that allows it later": {
			prepare: func(w *nodeagent.World) { w.Blocked = "budget db" },
			before: func(w *nodeagent.World, _ int, _ string) {
				switch reason := w.Note(api.Reason); {
				case w.Since() > 90*time.Second:
					w.Blocked = ""
				case reason != "" && reason != "cannot drain the node: budget db; ask its owner":
					w.Violated("the reason is %q", reason)
				}
			},
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
			also: func(w *nodeagent.World) string { return published(w, "Drained", api.Unknown, "budget db") },
		},
		"a drain whose beginning is recorded in the future": {
			before: func(w *nodeagent.World, _ int, name string) {
				if w.Blocked = "budget db"; name == "drain" && w.Note("skewed") == "" {
					w.Change(func(n *node.Node) {
						n.Annotations[api.DrainStarted], n.Annotations["skewed"] = "2036-01-01T00:00:00Z", "once"
					})
				}
			},
			want: "reboot", state: api.StateDegraded, current: "a", retried: true,
		},
		"a drain that goes on after its time": {
			prepare: func(w *nodeagent.World) { w.Policy.KeepDraining, w.Policy.DrainLimit = true, 2*time.Minute },
			before: func(w *nodeagent.World, _ int, name string) {
				if name != "drain" {
					return
				}
				if w.Blocked = "budget db"; w.Since() > 4*w.Policy.DrainLimit {
					w.Blocked = ""
				}
				if state := w.State(); w.Since() > 3*w.Policy.DrainLimit && (state != api.StateDegraded || !strings.Contains(w.Note(api.Reason), "cannot drain the node: budget db; ask its owner")) {
					w.Violated("the node is %s, %q", state, w.Note(api.Reason))
				}
			},
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
			also: func(w *nodeagent.World) string {
				return cordonedOnce(w) + published(w, "Drained", api.Unknown, "budget db") + published(w, "NodeDegraded", api.True, "budget db")
			},
		},
		"an uncordon during the drain": {
			before: func(w *nodeagent.World, _ int, name string) {
				if name == "drain" && w.Since() < 10*time.Minute {
					w.Change(func(n *node.Node) { n.Unschedulable = false })
					w.Clock = w.Clock.Add(w.Policy.DrainLimit + time.Minute)
				}
			},
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
			also: func(w *nodeagent.World) string {
				if slices.Contains(w.Events, api.EventFailedToDrain) {
					return "that counts as a failure"
				}
				return ""
			},
		},
		"another target on the way": {
			want: "reboot", state: api.StateDone, current: "second", changes: true,
			before: func(w *nodeagent.World, call int, _ string) {
				if call == 12 {
					w.Want("second")
				}
			},
		},
		"the old target again during the download": {
			want: "live", state: api.StateDone, current: "a", changes: true,
			begun: func(w *nodeagent.World) bool { return w.Note(api.DesiredConfig) == "a" },
			before: func(w *nodeagent.World, _ int, name string) {
				switch {
				case name == "look" && w.Machine.Running():
					w.Want("a")
				case name == "start apply" && w.Note(api.DesiredConfig) == "a":
					w.Violated("it applies what is no longer desired")
				}
			},
		},
		"the old target again": {
			want: "reboot", state: api.StateDone, current: "a", changes: true,
			begun: func(w *nodeagent.World) bool { return w.Note(api.DesiredConfig) == "a" },
			before: func(w *nodeagent.World, call int, _ string) {
				if call == 25 {
					w.Want("a")
				}
			},
		},
		"no longer managed": {
			want: "reboot", state: api.StateWorking, current: "a", changes: true,
			begun: func(w *nodeagent.World) bool { return w.Note(api.DesiredConfig) == "" },
			before: func(w *nodeagent.World, call int, name string) {
				if name == "drain" {
					w.Change(func(n *node.Node) { delete(n.Annotations, api.DesiredConfig) })
				}
			},
		},
		"drift that is taken back": {
			want: "a", state: api.StateDone, current: "a",
			begun: func(w *nodeagent.World) bool { return slices.Contains(w.States, api.StateDegraded) },
			before: func(w *nodeagent.World, _ int, name string) {
				if name == "watch" {
					w.Machine.Drifted = !slices.Contains(w.States, api.StateDegraded)
				}
			},
		},
		"downloaded before its turn": {
			prepare: func(w *nodeagent.World) { ask(w, "reboot") },
			want:    "a", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
			before: func(w *nodeagent.World, _ int, name string) {
				switch d := w.System.Download; {
				case w.Note(api.DesiredConfig) == "reboot" && name == "start download":
					w.Violated("it is downloaded again")
				case w.Note(api.DesiredConfig) == "a" && d != nil && *d == api.EarlyDownload{Config: "reboot"}:
					ask(w, "")
					w.Want("reboot")
				}
			},
		},
		"its turn during the download": {
			prepare: func(w *nodeagent.World) { ask(w, "reboot") },
			want:    "a", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
			before: func(w *nodeagent.World, _ int, name string) {
				switch {
				case w.Note(api.DesiredConfig) == "a" && w.Machine.Running():
					w.Want("reboot")
				case name == "stop":
					w.Violated("the download is stopped")
				}
			},
		},
		"another download instead": {
			prepare: func(w *nodeagent.World) { ask(w, "reboot") },
			want:    "a", state: api.StateDone, current: "a",
			before: func(w *nodeagent.World, _ int, _ string) {
				if w.Machine.Running() {
					ask(w, "second")
				}
			},
			begun: func(w *nodeagent.World) bool {
				d := w.System.Download
				return w.Note(api.Download) == "second" && d != nil && *d == api.EarlyDownload{Config: "second"}
			},
			also: neverCordoned,
		},
		"a download that fails before its turn": {
			prepare: func(w *nodeagent.World) {
				w.Configs["bad"] = nodeagent.Config{Reboot: true, Drain: true, Invalid: true}
				ask(w, "bad")
			},
			want: "a", state: api.StateDone, current: "a",
			begun: func(w *nodeagent.World) bool {
				d := w.System.Download
				return d != nil && d.Config == "bad" && strings.Contains(d.Failure, "invalid")
			},
			also: func(w *nodeagent.World) string {
				if slices.Contains(w.States, api.StateDegraded) || slices.Contains(w.Events, api.EventFailed) {
					return "the node is degraded by a download"
				}
				return ""
			},
		},
		"its turn after a download that has failed": {
			prepare: func(w *nodeagent.World) {
				w.Configs["slow"] = nodeagent.Config{Reboot: true, Drain: true, Unavailable: 1}
				ask(w, "slow")
			},
			want: "a", state: api.StateDone, current: "slow", boots: 1, evictions: 1,
			before: func(w *nodeagent.World, _ int, _ string) {
				if w.Configs["slow"].Unavailable == 0 && !w.Machine.Running() {
					w.Want("slow")
				}
			},
			also: func(w *nodeagent.World) string {
				if slices.Contains(w.States, api.StateDegraded) {
					return "the change has failed because of the download before it"
				}
				return ""
			},
		},
		"no such MachineConfig to download": {
			prepare: func(w *nodeagent.World) { ask(w, "nowhere") },
			want:    "a", state: api.StateDone, current: "a",
			begun: func(w *nodeagent.World) bool {
				d := w.System.Download
				return d != nil && d.Config == "nowhere" && strings.Contains(d.Failure, "cannot read the MachineConfig nowhere")
			},
		},
		"asked again": {
			prepare: func(w *nodeagent.World) {
				w.Configs["slow"] = nodeagent.Config{Reboot: true, Drain: true, Unavailable: 1}
				ask(w, "slow")
			},
			want: "a", state: api.StateDone, current: "a",
			before: func(w *nodeagent.World, _ int, name string) {
				again := func(step string) { w.Change(func(n *node.Node) { n.Annotations["again"] = step }) }
				switch d := w.System.Download; {
				case d != nil && d.Failure != "" && w.Note("again") == "":
					ask(w, "")
					again("not asked")
				case w.Note("again") == "not asked" && name == "get node":
					again("seen without")
				case w.Note("again") == "seen without" && name == "tell":
					ask(w, "slow")
					again("asked")
				}
			},
			begun: func(w *nodeagent.World) bool { return w.System.Download != nil && w.System.Download.Failure == "" },
		},
		"somebody else writes": {
			want: "reboot", state: api.StateDone, current: "reboot", boots: 1, evictions: 1,
			before: func(w *nodeagent.World, call int, _ string) {
				if call%5 == 0 {
					w.Change(func(n *node.Node) { n.Annotations["count"] += "." })
				}
			},
		},
	}
}

// ask asks the node to download a MachineConfig before its turn; "": no more.
func ask(w *nodeagent.World, config string) {
	w.Change(func(n *node.Node) {
		n.Annotations[api.Download] = config
		if config == "" {
			delete(n.Annotations, api.Download)
		}
	})
}

func cordonedOnce(w *nodeagent.World) string {
	cordons := slices.DeleteFunc(slices.Clone(w.Events), func(e string) bool { return e != api.EventCordon })
	if len(cordons) > 1 || slices.Contains(w.Events[:max(len(w.Events)-2, 0)], api.EventUncordon) {
		return "the node was given back"
	}
	return ""
}

// published returns what is wrong if a condition never had a status with a message.
func published(w *nodeagent.World, condition string, status metav1.ConditionStatus, message string) string {
	for _, u := range w.Updates {
		for _, c := range u.Conditions {
			if c.Type == condition && c.Status == status && strings.Contains(c.Message, message) {
				return ""
			}
		}
	}
	return fmt.Sprintf("the condition %s is never %s with %q", condition, status, message)
}

func neverCordoned(w *nodeagent.World) string {
	if slices.Contains(w.Events, api.EventCordon) {
		return "the node was cordoned"
	}
	return ""
}

// world returns the world of a story at its beginning.
func (s story) world(kills map[int]nodeagent.When) *nodeagent.World {
	w := nodeagent.New()
	if s.prepare != nil {
		s.prepare(w)
	}
	w.Want(s.want)
	w.Kills = kills
	if s.before != nil {
		w.Before = func(call int, name string) { s.before(w, call, name) }
	}
	return w
}

// settled reports whether a world is as the story ends.
func (s story) settled(w *nodeagent.World) bool {
	if s.trial && w.Machine.Phase == "failed" {
		s.state, s.current = api.StateDegraded, "a"
	}
	if s.attempts && w.Machine.Boots >= 3 && w.Note(api.FailedConfig) == s.want {
		s.state, s.current = api.StateDegraded, "a"
	}
	return (s.begun == nil || s.begun(w)) && w.State() == s.state && w.Machine.Current == s.current && w.Node.Unschedulable == s.cordoned &&
		(s.state != api.StateDone || w.Note(api.CurrentConfig) == s.current) && (s.state == api.StateDone) == (w.Note(api.Reason) == "" && s.state != api.StateWorking)
}

// check returns what is wrong at the end.
func (s story) check(w *nodeagent.World, power bool) (wrong []string) {
	wrong = slices.Clone(w.Violations)
	if w.Note("other") != "kept" {
		wrong = append(wrong, "an annotation of others is lost")
	}
	if !s.changes && !power && (w.Machine.Boots != s.boots || w.Evictions != s.evictions) {
		wrong = append(wrong, fmt.Sprintf("%d boots, %d drains", w.Machine.Boots, w.Evictions))
	}
	if ours := w.Note(api.CordonedFor) != ""; ours && !(s.cordoned && s.state == api.StateDegraded) {
		wrong = append(wrong, "the cordon is recorded as ours")
	}
	if w.Note(api.PostConfigAction) != "" {
		wrong = append(wrong, "the reboot is still announced")
	}
	switch told := w.Machine.Told; {
	case w.Note(api.DesiredConfig) == "" && told != nil:
		wrong = append(wrong, "the host is told of a cluster that wants nothing")
	case w.Note(api.DesiredConfig) != "" && (told == nil || told.Config != w.Note(api.DesiredConfig) || told.State != w.State() || told.Reason != w.Note(api.Reason)):
		wrong = append(wrong, fmt.Sprintf("the host is told %+v", told))
	}
	if s.also != nil {
		if problem := s.also(w); problem != "" {
			wrong = append(wrong, problem)
		}
	}
	return wrong
}

// run runs a story to its end, and checks that it stays there.
func (s story) run(kills map[int]nodeagent.When) (w *nodeagent.World, calls int, wrong []string) {
	w = s.world(kills)
	calls, err := w.Run(func() bool { return s.settled(w) })
	idle := 30
	if s.retried {
		idle = 1
	}
	if err == nil {
		err = w.Idle(idle)
	}
	if err != nil {
		return w, calls, []string{err.Error()}
	}
	if !s.settled(w) {
		wrong = append(wrong, "it does not stay as it was")
	}
	power := slices.Contains(slices.Collect(maps.Values(kills)), nodeagent.PowerCut)
	return w, calls, append(wrong, s.check(w, power)...)
}

// TestStories runs each story, and again with the agent killed, or the power cut, in each of its calls.
// PIVOT_SWEEP=long kills a second agent, too.
func TestStories(t *testing.T) {
	for name, s := range stories() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.sweep(t)
		})
	}
}

// sweep runs a story, and again with the agent killed, or the power cut, in each of its calls.
func (s story) sweep(t *testing.T) {
	t.Helper()
	w, calls, wrong := s.run(nil)
	if len(wrong) > 0 {
		t.Fatalf("%q: %s", wrong, w)
	}
	t.Logf("swept %d calls: %v", calls, w.Requests)
	for first := 1; first <= calls; first++ {
		for _, when := range []nodeagent.When{nodeagent.BeforeCall, nodeagent.AfterCall, nodeagent.PowerCut} {
			s.killed(t, map[int]nodeagent.When{first: when})
			if os.Getenv("PIVOT_SWEEP") != "long" {
				continue
			}
			for second := first + 1; second <= calls+5; second++ {
				for _, then := range []nodeagent.When{nodeagent.BeforeCall, nodeagent.AfterCall, nodeagent.PowerCut} {
					s.killed(t, map[int]nodeagent.When{first: when, second: then})
				}
			}
		}
	}
}

func (s story) killed(t *testing.T, kills map[int]nodeagent.When) {
	t.Helper()
	if w, _, wrong := s.run(kills); len(wrong) > 0 {
		t.Fatalf("killed %v: %q: %s", kills, wrong, w)
	}
}

// TestRequests: a rollout with a reboot takes at most 40 requests to the API.
func TestRequests(t *testing.T) {
	s := stories()["image"]
	w := s.world(nil)
	if _, err := w.Run(func() bool { return s.settled(w) }); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, n := range w.Requests {
		sum += n
	}
	if t.Log(sum, w.Requests); sum > 40 {
		t.Errorf("%d requests: %v", sum, w.Requests)
	}
}

// TestAtRest: after a change the NodeSystem says that the agent is at rest, and comparing the node again and again is
// not worth a request. What has not changed is published once or twice an hour.
func TestAtRest(t *testing.T) {
	for _, name := range []string{"image", "files", "a commit that fails", "a proof that fails"} {
		s := stories()[name]
		w := s.world(nil)
		if _, err := w.Run(func() bool { return s.settled(w) && w.System.Step == string(node.ActionRest) }); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		begun, before := w.Since(), w.Requests["publish system"]
		if err := w.Idle(20); err != nil {
			t.Fatal(err)
		}
		more := w.Requests["publish system"] - before // by another agent, which knows nothing
		most := 2 + int((w.Since()-begun)/(30*time.Minute))
		if w.System.Step != string(node.ActionRest) || more > most || w.Since()-begun < time.Hour {
			t.Errorf("%s: after %s, with %d requests, the step is %q", name, w.Since()-begun, more, w.System.Step)
		}
	}
}

// TestMissingArgument: a kernel argument that the new system lacks is named in the NodeSystem, where the fleet's
// controller and a person find it.
func TestMissingArgument(t *testing.T) {
	s := stories()["a proof that fails"]
	w := s.world(nil)
	if _, err := w.Run(func() bool { return s.settled(w) }); err != nil {
		t.Fatal(err)
	}
	if got := w.System; got.Proof == nil || got.Proof.OK || !slices.Equal(got.KernelArguments.Missing, []string{"quiet"}) || len(got.KernelArguments.Excess) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestLongRun: a run that takes long costs a request a minute.
func TestLongRun(t *testing.T) {
	s := stories()["files"]
	short, long := s.world(nil), s.world(nil)
	long.Machine.RunTicks = 120 // a download and an apply, each of ten minutes
	for _, w := range []*nodeagent.World{short, long} {
		if _, err := w.Run(func() bool { return s.settled(w) }); err != nil {
			t.Fatal(err)
		}
	}
	if more := long.Requests["get node"] - short.Requests["get node"]; more > 21 || more < 10 {
		t.Errorf("%d requests more in 20 minutes", more)
	}
}

// TestWoken: an agent that waits for a run reads the node again when it is woken.
func TestWoken(t *testing.T) {
	w := nodeagent.New()
	w.Want("reboot")
	w.Machine.RunTicks = 1000
	calls := make(chan string, 1000)
	w.Before = func(_ int, name string) { calls <- name }
	ctx, cancel := context.WithCancel(t.Context())
	wake, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		agent := w.Agent()
		agent.Metrics = &node.Metrics{}
		agent.Run(ctx, wake)
	}()
	until := func(name string) (before []string) {
		for got := range calls {
			if got == name {
				break
			}
			before = append(before, got)
		}
		return before
	}
	until("start download")
	for range 3 {
		wake <- struct{}{}
		if before := until("look"); !slices.Contains(before, "get node") {
			t.Errorf("it does not read the node: %q", before)
		}
	}
	cancel()
	<-ended
}

// TestPublishedAgain: a state of the node that could not be written is written later, although it has not
// changed since. The fleet's controller waits for it.
func TestPublishedAgain(t *testing.T) {
	w := nodeagent.New()
	w.Unpublished = 2
	if _, err := w.Run(func() bool { return w.State() == api.StateDone && w.Unpublished == 0 && w.System.Config.Current == "a" }); err != nil {
		t.Fatal(err)
	}
}

// TestConditionsKeepTheirTimes: a condition has the time of its last change, also after a reboot, and so in another
// process.
func TestConditionsKeepTheirTimes(t *testing.T) {
	w := nodeagent.New()
	w.Want("reboot")
	if _, err := w.Run(func() bool { return w.State() == api.StateDone && w.Note(api.CurrentConfig) == "reboot" }); err != nil {
		t.Fatal(err)
	}
	last := map[string]metav1.Condition{}
	for i, u := range w.Updates {
		for _, c := range u.Conditions {
			if before, ok := last[c.Type]; ok && before.Status == c.Status && !before.LastTransitionTime.Equal(&c.LastTransitionTime) {
				t.Errorf("update %d: %s is %s as before, since %s and not %s", i, c.Type, c.Status, c.LastTransitionTime, before.LastTransitionTime)
			}
			last[c.Type] = c
		}
	}
	if len(last) == 0 || w.Machine.Boots == 0 {
		t.Errorf("nothing was published: %s", w)
	}
}

// TestListsAreCut: whatever a machine says of itself, the NodeSystem is one that the API server accepts. Its lists are
// as short as the schema wants them, and all of it is smaller than a request to etcd.
func TestListsAreCut(t *testing.T) {
	w := nodeagent.New()
	w.Configs["large"] = nodeagent.Config{Reboot: true, Arguments: 2000}
	w.Configs["parts"] = nodeagent.Config{LeftOut: 1000}
	w.Want("large")
	if _, err := w.Run(func() bool { return w.State() == api.StateDegraded && w.System.Proof != nil && !w.System.Proof.OK }); err != nil {
		t.Fatal(err)
	}
	if s := w.System; len(s.KernelArguments.Missing) != 100 || s.Proof.Number != 2000 || len(s.Proof.Differences) != 20 {
		t.Errorf("%d arguments, %d differences of %d", len(s.KernelArguments.Missing), len(s.Proof.Differences), s.Proof.Number)
	}
	w.Want("parts")
	if _, err := w.Run(func() bool { return len(w.System.LeftOut) > 0 }); err != nil {
		t.Fatal(err)
	}
	if all := w.System.LeftOut; len(all) != 101 || len(all[0]) > 2000 || all[100] != "and 900 more" {
		t.Errorf("%d entries, the first of %d bytes, the last one %q", len(all), len(all[0]), all[len(all)-1])
	}
}

// TestDeletedIsPublishedAgain: the objects about a node at rest are there again within an hour and a comparison after
// somebody has deleted them, also if the comparisons are rare.
func TestDeletedIsPublishedAgain(t *testing.T) {
	for _, every := range []time.Duration{10 * time.Minute, 24 * time.Hour} {
		w := nodeagent.New()
		w.Policy.ProveEvery = every
		var deleted time.Duration
		_, err := w.Run(func() bool {
			if deleted == 0 && w.State() == api.StateDone && w.System.Step == string(node.ActionRest) {
				w.System, w.Updates, deleted = api.NodeSystemStatus{}, nil, w.Since()
			}
			return deleted > 0 && w.System.AgentVersion != "" && len(w.Updates) > 0
		})
		if after := w.Since() - deleted; err != nil || after > 90*time.Minute {
			t.Errorf("compared every %s, they are there again after %s: %v", every, after, err)
		}
	}
}
