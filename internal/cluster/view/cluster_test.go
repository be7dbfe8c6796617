package view_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/view"
	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/controlplane"
)

// TestCluster reads the fleet at a real API server with the rights of deploy/fleet/rbac-view.yaml: they are
// enough, and without them the reader is told which ones are missing.
func TestCluster(t *testing.T) {
	c := controlplane.Start(t)
	c.Deploy("../../../deploy/base")
	for _, name := range []string{"pivot-agent", "pivot-fleet"} {
		c.Apply(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	}
	c.ApplyFile("../../../deploy/fleet/rbac-view.yaml")
	for _, b := range []struct{ kind, namespace, of, name string }{
		{"ClusterRoleBinding", "", "ClusterRole", "pivot-view"}, {"ClusterRoleBinding", "", "ClusterRole", "pivot-view-machineconfigs"},
		{"RoleBinding", "default", "Role", "pivot-view"}, {"RoleBinding", "pivot-agent", "Role", "pivot-view"},
		{"RoleBinding", "pivot-fleet", "Role", "pivot-view"},
	} {
		metadata := map[string]any{"name": b.name}
		if b.namespace != "" {
			metadata["namespace"] = b.namespace
		}
		c.Apply(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": b.kind, "metadata": metadata,
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": b.of, "name": b.name},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "viewers"}}})
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		c.Apply(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name, "labels": map[string]any{"node-role.kubernetes.io/worker": ""},
			"annotations": map[string]any{"machineconfiguration.openshift.io/currentConfig": "rendered-worker-1", "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-1"}}})
	}
	c.Apply(object(t, mc("50-worker", "worker", `{"kernelArguments":["quiet"]}`)))
	c.Apply(object(t, mc("rendered-worker-1", "worker", `{"kernelArguments":["quiet"],"config":{"ignition":{"version":"3.4.0"}}}`)))
	c.Apply(object(t, `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfigPool","metadata":{"name":"worker"},"spec":{"configuration":{"name":"rendered-worker-1"},
		"nodeSelector":{"matchLabels":{"node-role.kubernetes.io/worker":""}},"machineConfigSelector":{"matchLabels":{"machineconfiguration.openshift.io/role":"worker"}}}}`))
	c.Apply(object(t, `{"apiVersion":"machine-pivot.io/v1alpha1","kind":"PoolRollout","metadata":{"name":"worker"},"spec":{"canary":1}}`))

	client := func(groups ...string) *view.Client {
		client, err := view.NewClient(c.User("somebody", groups...))
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	viewer := client("viewers")
	var f view.Facts
	controlplane.Eventually(t, "the viewer has its rights", func(ctx context.Context) bool {
		var err error
		f, err = view.Observe(ctx, viewer, now())
		return err == nil && len(f.Missing) == 0
	})
	s, _ := view.Judge(f, "")
	if len(s.Pools) != 1 || s.Pools[0].Counts.Nodes != 3 || len(f.Rollouts) != 1 {
		t.Errorf("%+v", s)
	}
	p := planner(t, server{})
	p.Client = viewer
	out, err := p.Plan(t.Context(), f, view.Proposed{MachineConfigs: proposed(t, mc("60-debug", "worker", `{"kernelArguments":["debug"]}`))})
	if err != nil || out.Problems.Failed() || len(out.Missing) > 0 || len(out.Pools) != 1 || out.Pools[0].Rounds != 3 || out.Pools[0].Nodes[0].Effect != view.EffectReboot {
		t.Errorf("%+v, %v", out, err)
	}
	var archive bytes.Buffer
	if err := (view.Gatherer{Client: viewer, Namespaces: []string{"pivot-agent", "pivot-fleet"}, Now: now()}).Gather(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, &archive)
	if strings.Contains(files["summary.txt"], "missing:") || !strings.Contains(files["objects/machineconfigs.json"], `"50-worker"`) {
		t.Errorf("%s\n%s", files["summary.txt"], files["objects/machineconfigs.json"])
	}
	if _, err := view.Observe(t.Context(), client(), now()); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), `cannot list resource "machineconfigpools"`) {
		t.Errorf("without rights: %v", err)
	}
}
