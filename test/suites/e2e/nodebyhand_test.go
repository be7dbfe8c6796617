package e2e_test

import (
	"encoding/base64"
	"os"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/bootlab"
)

// spoils is a unit of a MachineConfig that contradicts the rest: it changes the file when the machine starts.
const spoils = "[Unit]\nBefore=pivot-agent.service\n[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo spoiled >" + nodeFile + "'\n[Install]\nWantedBy=multi-user.target\n"

// badProof: the new system runs, but is not what its MachineConfig says. The node is Degraded, says what differs, and
// serves nobody.
func badProof(t *testing.T, w *nodeWorld) {
	boots, current := w.Booted(), w.node().Annotations[api.CurrentConfig]
	seven := changed(t, w.lab, "seven", 2)
	seven.Units = []bootlab.Unit{{Name: "spoils.service", Enabled: true, Contents: spoils}}
	w.want(t, seven)
	w.Until(t, "the proof fails", func() bool { return w.has(api.FailedConfig, "seven") })
	w.waitForEvent(t, api.EventNotProven)
	n := w.node()
	if note := n.Annotations; !n.Spec.Unschedulable || note[api.StateOfNode] != api.StateDegraded || !strings.Contains(note[api.Reason], nodeFile) || note[api.CurrentConfig] != current {
		t.Errorf("cordoned %v, annotations %q", n.Spec.Unschedulable, n.Annotations)
	}
	w.Until(t, "the conditions say so", func() bool {
		got := w.conditions()
		return got["NodeDegraded"] == api.True && got["Updated"] == api.False
	})
	if n := w.Booted(); n != boots+1 {
		t.Errorf("%d boots, want %d", n, boots+1)
	}
}

// appliesByHand is the command of docs/cluster.md with which an administrator changes a machine.
const appliesByHand = "pivot apply --reboot=if-needed mc.json"

// recoversByHand: an administrator does what docs/cluster.md says to do without the agent, on a node that an agent has
// left cordoned. The next agent, which starts with the machine, finds the result.
func recoversByHand(t *testing.T, w *nodeWorld) {
	boots := w.Booted()
	w.Until(t, "the agent is stopped", func() bool { return w.answers(t, "systemctl stop pivot-agent && echo stopped", "stopped") })
	eight := changed(t, w.lab, "eight", 3)
	w.want(t, eight)
	object, err := w.client.CoreV1().RESTClient().Get().AbsPath("/apis/machineconfiguration.openshift.io/v1/machineconfigs/eight").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile("../../../docs/cluster.md"); err != nil || !strings.Contains(string(text), "\n"+appliesByHand+"\n") {
		t.Fatalf("docs/cluster.md has no command %q, %v", appliesByHand, err)
	}
	copied := "echo " + base64.StdEncoding.EncodeToString(object) + " | base64 -d >/root/mc.json && echo copied"
	w.Until(t, "the MachineConfig is on the host", func() bool { return w.answers(t, copied, "copied") })
	w.byHand.Store(true)
	w.Until(t, "pivot applies it", func() bool {
		return w.answers(t, "systemd-run --unit by-hand --quiet --working-directory=/root "+appliesByHand+" && echo begun", "begun")
	})
	w.Until(t, "the machine reboots", func() bool { return w.Booted() > boots })
	w.byHand.Store(false)
	patchNode(t, w.client, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{api.CordonedFor: nil, api.FailedConfig: nil}}, "spec": map[string]any{"unschedulable": nil},
	})
	w.Until(t, "the node has eight", func() bool { return w.hasSettled("eight") })
	w.waitForEvent(t, api.EventDone)
	w.expectRolledOut(t, eight, boots+1)
}
