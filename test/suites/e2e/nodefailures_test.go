package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/registry"
)

// nodePowerCuts cuts the machine's power three times in one rollout: after the drain, in the commit, and before
// the node is uncordoned.
func nodePowerCuts(t *testing.T, w *nodeWorld) {
	boots := w.Booted()
	three := changed(t, w.lab, "three", 1)
	cut := func(what string, reached func() bool) {
		t.Helper()
		w.Until(t, what, reached)
		w.CutPower()
		w.checkDrained()
	}
	w.want(t, three)
	cut("the reboot is announced", func() bool { return w.has(api.PostConfigAction, api.ActionReboot) })
	if next := entry(t, w.Machine); strings.Contains(next.Options, "node.three") {
		t.Errorf("the power was cut after the commit: the next boot has the options %q", next.Options)
	}
	from := len(w.Console(0))
	w.PowerOn(w.t)
	cut("pivot commits", func() bool { return w.Says(from, "phase committed") })
	if next := entry(t, w.Machine); strings.Contains(next.Options, "node.three") {
		t.Errorf("the power was cut after the commit: the next boot has the options %q", next.Options)
	}
	w.PowerOn(w.t)
	w.Until(t, "the machine reboots", func() bool { return w.Booted() == boots+3 })
	from = len(w.Console(0))
	cut("the agent proves the new system", func() bool { return w.Says(from, `"action":"prove"`) })
	w.PowerOn(w.t)
	w.Until(t, "the node has three", func() bool { return w.hasSettled("three") })
	w.expectRolledOut(t, three, boots+4) // three by us, and one reboot
	// The cut in the commit has taken it away, which the agent says before it commits again.
	w.waitForEvent(t, api.EventDone)
	got := w.events(t)
	for reason, times := range map[string]int{api.EventCordon: 1, api.EventFailed: 1, api.EventNotProven: 0, api.EventDone: 1} {
		if n := len(slices.DeleteFunc(slices.Clone(got), func(r string) bool { return r != reason })); n != times {
			t.Errorf("events %q, want %s %d times", got, reason, times)
		}
	}
}

// serverStops: the API server is away while pivot pulls the image, and while the machine reboots.
func serverStops(t *testing.T, w *nodeWorld) {
	boots := w.Booted()
	four := changed(t, w.lab, "four", 2)
	pull := holdPull(t, w.lab.Registry)
	w.want(t, four)
	w.Until(t, "pivot pulls the image", pull.isHeld)
	w.plane.StopServer()
	pull.release()
	w.Until(t, "pivot ends its download", func() bool { return w.answers(t, "systemctl show -P SubState pivot-agent-run.service", "exited") })
	w.plane.StartServer()
	w.Until(t, "pivot makes the change", func() bool {
		return w.answers(t, `grep -o '"verb":"apply"' /run/pivot/agent/request.json`, `"verb":"apply"`)
	})
	w.checkDrained()
	w.plane.StopServer()
	w.Until(t, "the machine has four", func() bool { return w.answers(t, "grep -o node.four /proc/cmdline; cat "+nodeFile, "node.four\nfour") })
	w.plane.StartServer()
	w.Until(t, "the node has four", func() bool { return w.hasSettled("four") })
	w.expectRolledOut(t, four, boots+1)
}

// changesItsMind: an image that is not in the registry, then one that is replaced while it is pulled.
func changesItsMind(t *testing.T, w *nodeWorld) {
	boots, current := w.Booted(), w.node().Annotations[api.CurrentConfig]
	bad := changed(t, w.lab, "bad", 2)
	bad.Image = w.lab.Registry.HostAs(bootlab.GuestHost) + "/os/derived@sha256:" + strings.Repeat("0", 64)
	w.want(t, bad)
	w.Until(t, "the bad image is reported", func() bool { return w.has(api.StateOfNode, api.StateDegraded) })
	n := w.node()
	if reason := n.Annotations[api.Reason]; !strings.Contains(reason, strings.Repeat("0", 64)) || n.Annotations[api.FailedConfig] != "bad" || n.Annotations[api.CurrentConfig] != current {
		t.Errorf("annotations %q", n.Annotations)
	}
	w.waitForEvent(t, api.EventFailed)
	if got := w.events(t); slices.Contains(got, api.EventCordon) || n.Spec.Unschedulable {
		t.Errorf("events %q, cordoned %v, want a failure without a cordon", got, n.Spec.Unschedulable)
	}
	pull := holdPull(t, w.lab.Registry)
	w.want(t, changed(t, w.lab, "five", 3))
	w.Until(t, "pivot pulls the image of five", pull.isHeld)
	six := changed(t, w.lab, "six", 4)
	w.want(t, six)
	w.Until(t, "the node has six", func() bool { return w.hasSettled("six") })
	w.expectRolledOut(t, six, boots+1)
	w.waitForEvent(t, api.EventDone)
}

// driftsAndReturns: somebody changes a file of the MachineConfig, and later puts it back.
func driftsAndReturns(t *testing.T, w *nodeWorld) {
	boots := w.Booted()
	name := w.node().Annotations[api.DesiredConfig]
	w.eventsFromNow(t)
	const oftener = "mkdir -p /run/systemd/system/pivot-agent.service.d && cd /run/systemd/system/pivot-agent.service.d && " +
		"sed 's/--verbose/--verbose --prove-every=1m/' /etc/systemd/system/pivot-agent.service.d/test.conf >zz.conf && systemctl daemon-reload && systemctl restart pivot-agent && echo restarted"
	w.Until(t, "the agent compares each minute", func() bool { return w.answers(t, oftener, "restarted") })
	w.Until(t, "the file is changed", func() bool { return w.answers(t, "echo other >"+nodeFile+" && echo changed", "changed") })
	w.Until(t, "the drift is reported", func() bool { return w.has(api.StateOfNode, api.StateDegraded) })
	if reason := w.node().Annotations[api.Reason]; !strings.Contains(reason, nodeFile) {
		t.Errorf("reason %q", reason)
	}
	w.Until(t, "conditions and metrics say so", func() bool {
		return w.conditions()["NodeDegraded"] == api.True && w.answers(t, driftMetric, "pivot_agent_config_drift 1")
	})
	w.waitForEvent(t, api.EventDrift)
	if s := w.system(t); s.Proof == nil || s.Proof.OK || s.Proof.Number != 1 {
		t.Errorf("NodeSystem %+v", s)
	}
	w.Until(t, "the file is put back", func() bool { return w.answers(t, "echo "+name+" >"+nodeFile+" && echo changed", "changed") })
	w.Until(t, "the node is well again", func() bool {
		return w.hasSettled(name) && w.conditions()["NodeDegraded"] == api.False && w.answers(t, driftMetric, "pivot_agent_config_drift 0")
	})
	if n := w.Booted(); n != boots || w.node().Spec.Unschedulable {
		t.Errorf("%d boots, want %d and no cordon", n, boots)
	}
}

// driftMetric prints the agent's metric of drift.
const driftMetric = `exec 4<>/dev/tcp/127.0.0.1/8797; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&4; grep '^pivot_agent_config_drift' <&4`

// answers reports whether a command on the machine has an output.
func (w *nodeWorld) answers(t *testing.T, command, want string) bool {
	t.Helper()
	output, ok := w.shell.Types(t, command)
	return ok && output == want
}

// heldPull is a download that the registry has begun and does not go on with.
type heldPull struct{ held, open chan struct{} }

// holdPull holds the next download of a blob, until it is released or its client gives up.
func holdPull(t *testing.T, r *registry.Registry) heldPull {
	t.Helper()
	p := heldPull{make(chan struct{}), make(chan struct{})}
	r.Spoil(registry.Rule{On: "/blobs/", Times: 1, Fault: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			close(p.held)
			select {
			case <-p.open:
				next.ServeHTTP(rw, req)
			case <-req.Context().Done():
			}
		})
	}})
	return p
}

func (p heldPull) release() { close(p.open) }

func (p heldPull) isHeld() bool {
	select {
	case <-p.held:
		return true
	default:
		return false
	}
}
