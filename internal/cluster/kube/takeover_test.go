package kube_test

import (
	"context"
	"encoding/json"
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// become makes the node one with these annotations and no others, as an administrator can.
func (w world) become(notes map[string]string, cordoned bool) {
	w.Helper()
	n, err := w.Node(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	all := map[string]any{}
	for name := range n.Annotations {
		all[name] = nil
	}
	for name, value := range notes {
		all[name] = value
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": all}, "spec": map[string]any{"unschedulable": cordoned}})
	if err == nil {
		err = w.admin.Patch(types.MergePatchType).AbsPath("/api/v1/nodes/n1").Body(body).Do(w.Context()).Error()
	}
	if err != nil {
		w.Fatal(err)
	}
}

// drainController does what the operator's controller does, with the rights of an administrator.
func (w world) drainController() {
	w.Helper()
	n, err := w.Node(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	if asked := n.Annotations[api.DesiredDrain]; asked != n.Annotations[api.LastAppliedDrain] {
		notes := maps.Clone(n.Annotations)
		notes[api.LastAppliedDrain] = asked
		w.become(notes, api.IsDrain(asked))
	}
}

// TestTakeOver: nodes that the machine-config-daemon or a first boot has left are taken over at a real API
// server, with a node's own credentials, and are given back.
func TestTakeOver(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	const one = "rendered-worker-1"
	w := newWorld(t)
	w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": map[string]any{"name": one},
		"spec": map[string]any{"config": map[string]any{"ignition": map[string]any{"version": "3.4.0"}}}})
	w.eventually("read a MachineConfig", func() error {
		_, err := w.MachineConfig(t.Context(), one)
		return err
	})
	done := map[string]string{api.CurrentConfig: one, api.DesiredConfig: one, api.StateOfNode: api.StateDone, api.Reason: "", api.PostConfigAction: "",
		api.DesiredDrain: api.UncordonFor(one), api.LastAppliedDrain: api.UncordonFor(one)}
	joined := maps.Clone(done)
	delete(joined, api.DesiredDrain)
	delete(joined, api.LastAppliedDrain)
	rebooted := maps.Clone(done)
	maps.Copy(rebooted, map[string]string{api.CurrentConfig: "rendered-worker-0", api.StateOfNode: api.StateWorking, api.PostConfigAction: api.ActionReboot,
		api.DesiredDrain: api.DrainFor(one), api.LastAppliedDrain: api.DrainFor(one)})
	for name, c := range map[string]struct {
		notes    map[string]string
		cordoned bool
		by       string
		want     map[string]string
	}{
		"done":                   {done, false, "machine-config-daemon", done},
		"rebooted, not finished": {rebooted, true, "machine-config-daemon", done},
		"joins":                  {nil, false, "first-boot", joined},
	} {
		t.Run(name, func(t *testing.T) {
			w := w
			w.T = t
			w.become(c.notes, c.cordoned)
			host := nodeagent.New()
			host.Policy.ByController = true
			host.Configs[one] = nodeagent.Config{}
			host.Machine = nodeagent.Machine{Current: one, Desired: one, Phase: "done", RecordedBy: c.by}
			agent := host.Agent()
			agent.Cluster = w.Cluster
			for range 30 {
				if _, err := agent.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
				host.Pass()
				w.drainController()
			}
			w.expect(t.Context(), c.want)
			if host.Machine.RecordedBy != "pivot" || host.Machine.Boots > 0 || len(host.Violations) > 0 {
				t.Errorf("the host: %s", host)
			}
			var handed *node.Handed
			for range 5 {
				_, after, err := agent.HandBack(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if host.Pass(); after != nil {
					handed = after
					break
				}
			}
			if handed == nil || handed.Nothing {
				t.Errorf("it is not given back: %+v", handed)
			}
			w.expect(t.Context(), done)
		})
	}
}

// expect compares the node's annotations, and that it is not cordoned.
func (w world) expect(ctx context.Context, want map[string]string) {
	w.Helper()
	n, err := w.Node(ctx)
	if err != nil || n.Unschedulable || !maps.Equal(n.Annotations, want) {
		w.Errorf("cordoned %v, annotations %v, want %v, %v", n.Unschedulable, n.Annotations, want, err)
	}
}
