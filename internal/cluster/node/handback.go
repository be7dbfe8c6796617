package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/fault"
)

// Handed is what a node was given back with.
type Handed struct {
	Current, Desired string // MachineConfigs
	Uncordoned       bool
	LeftOut          []string // parts of Current that only an installation can apply, and that the host lacks
	Nothing          bool     // the node was the machine-config-daemon's already
}

// String says what the machine-config-daemon will find, in lines for people.
func (h Handed) String() string {
	if h.Nothing {
		return api.BoundedReason("nothing to do: the node is the machine-config-daemon's, and has "+h.Current) + "\n"
	}
	lines := []string{"the host and the node's annotations say that the node has " + h.Current + ", and is " + api.StateDone}
	if h.Uncordoned {
		lines = append(lines, "the node is uncordoned")
	}
	if len(h.LeftOut) > 0 {
		lines = append(lines, "the machine lacks what only an installation can apply, which the daemon does not compare: "+strings.Join(h.LeftOut, ", "))
	}
	if h.Desired != h.Current {
		lines = append(lines, "when the machine-config-daemon starts, it updates the node to "+h.Desired)
	}
	text := ""
	for _, line := range lines {
		text += api.BoundedReason(line) + "\n"
	}
	return text
}

// HandBack does one step of giving the node back to the machine-config-daemon, and returns how long to
// wait before the next one, or what was done. First the host is given back, which compares it with its
// MachineConfig, then the annotations: the daemon believes the host. Any other agent must have ended.
// An error that is not about the API or systemd is the reason for a refusal.
func (a *Agent) HandBack(ctx context.Context) (wait time.Duration, done *Handed, err error) {
	n, err := a.Cluster.Node(ctx)
	if err != nil {
		return 0, nil, err
	}
	host, err := a.Runner.Look(ctx)
	if errors.Is(err, hostpivot.ErrNotOstree) {
		return 0, nil, fault.New(fault.Refused, "cannot give the node back: %w", err)
	}
	if err != nil {
		return 0, nil, err
	}
	own := host.Run.Request.Verb == hostpivot.HandBack
	switch {
	case own && host.Run.State == hostpivot.RunRunning:
		return pollRun, nil, nil
	case host.Status.OfDaemon():
		done, err = a.giveBack(ctx, n, host, own)
		return 0, done, err
	case own && a.handing && host.Run.Failure != nil:
		return 0, nil, refused(host.Run.Failure)
	case own && a.handing && host.Run.State == hostpivot.RunEnded:
		return 0, nil, fmt.Errorf("pivot has ended hand-back without an error, but the host is not the machine-config-daemon's")
	}
	if err := whyNot(n, host); err != nil {
		return 0, nil, err
	}
	a.handing = true
	return pollRun, nil, a.Runner.Start(ctx, hostpivot.Request{Verb: hostpivot.HandBack, Config: host.Status.Current()})
}

// refused returns the error of a host that is not given back.
func refused(f *hostpivot.Failure) error {
	return fault.New(fault.Refused, "%s", f.Message).WithHint("%s", f.Hint)
}

// whyNot returns why a node is not given back now.
func whyNot(n Node, h hostpivot.Host) error {
	current, desired := h.Status.Current(), n.Annotations[api.DesiredConfig]
	refuse := func(why, hint string) error {
		return fault.New(fault.Refused, "cannot give the node back to the machine-config-daemon: %s", why).WithHint("%s", hint)
	}
	back := "wait for its end, or name " + current + " in the annotation " + api.DesiredConfig + " and run the agent until the node is " + api.StateDone
	switch {
	case h.Run.State == hostpivot.RunRunning:
		return refuse(fmt.Sprintf("a run of pivot is under way on the host: %s %s", h.Run.Request.Verb, h.Run.Request.Config), "wait for its end")
	case h.Run.Rebooting:
		return refuse("the host is about to reboot", "wait for its end")
	case desired == "":
		return refuse("it has no annotation "+api.DesiredConfig+", so that no agent manages it", "run pivot hand-back on the host, if that is still pivot's")
	case h.Status.Phase == phaseTrial:
		return refuse("its host has "+h.Status.Desired()+" on trial", "wait for its end, or end it on the host: pivot confirm, or a reboot")
	case h.Status.Pending != nil:
		return refuse("the next boot of its host starts another deployment, for "+h.Status.Desired(), back)
	case n.Annotations[api.StateOfNode] == api.StateWorking && desired != current:
		return refuse("a change to "+desired+" is under way", back)
	}
	return nil
}

// giveBack completes the annotations of a node with a host that is the daemon's. If nobody has given that host back,
// and the node has nothing of pivot's, its state is the daemon's business.
func (a *Agent) giveBack(ctx context.Context, n Node, host hostpivot.Host, own bool) (*Handed, error) {
	out := &Handed{Current: host.Status.Current(), Desired: n.Annotations[api.DesiredConfig], Uncordoned: n.Annotations[api.CordonedFor] != ""}
	if own && host.Run.Result != nil {
		out.LeftOut = host.Run.Result.LeftOut
	}
	p := handedBack(n, out.Current)
	if given := own && host.Run.Failure == nil; !given && !hasOwn(n) || !a.handing && p.changesNothing(n) {
		out.Nothing = true
		return out, nil
	}
	if err := errors.Join(a.Runner.Tell(nil), a.Runner.Watch(ctx, false)); err != nil { // the host has no agent from now on
		return nil, err
	}
	if _, err := a.Cluster.Patch(ctx, n, p); err != nil {
		return nil, err
	}
	a.event(ctx, n, Event{Reason: api.EventHandedBack, Message: "given back to the machine-config-daemon with " + out.Current})
	return out, nil
}

// changesNothing reports whether a node is what a patch makes it.
func (p Patch) changesNothing(n Node) bool {
	for name, value := range p.Annotations {
		if have, there := n.Annotations[name]; there != (value != nil) || there && have != *value {
			return false
		}
	}
	return p.Unschedulable == nil || *p.Unschedulable == n.Unschedulable
}

// hasOwn reports whether a node has an annotation of the agent's own.
func hasOwn(n Node) bool {
	return slices.ContainsFunc(api.OfAgent(), func(name string) bool { return n.Annotations[name] != "" })
}

// handedBack returns what the daemon expects of a proven node with a MachineConfig: its annotations as after that
// daemon's update, no cordon of pivot's, and nothing of pivot's own. What is desired stays, and so does an
// administrator's cordon: the daemon has no drain to end.
func handedBack(n Node, current string) Patch {
	end := api.UncordonFor(current)
	p := Patch{Annotations: map[string]*string{
		api.CurrentConfig: new(current), api.StateOfNode: new(api.StateDone), api.Reason: new(""), api.PostConfigAction: new(""),
		api.DesiredDrain: new(end), api.LastAppliedDrain: new(end),
	}}
	if n.Annotations[api.DesiredImage] == "" && n.Annotations[api.CurrentImage] != "" {
		p.Annotations[api.CurrentImage] = nil // the image is that of the MachineConfig
	}
	for _, name := range api.OfAgent() {
		p.Annotations[name] = nil
	}
	if n.Annotations[api.CordonedFor] != "" {
		p.Unschedulable = new(false)
	}
	return p
}
