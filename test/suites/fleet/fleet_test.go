// Package fleet tests the program pivot-fleet as it runs in a cluster: two replicas at the real API server, with
// the rights of deploy/fleet. Stand-ins for the nodes' agents give the nodes what they should have.
package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/tools/metrics"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/fleet"
)

const (
	workers = "node-role.kubernetes.io/worker"
	role    = "machineconfiguration.openshift.io/role"
)

// world is a cluster with replicas of the controller and with nodes.
type world struct {
	*testing.T
	client.Client
	plane *controlplane.ControlPlane
	fleet *fleet.Fleet

	mu       sync.Mutex
	most     int      // nodes that were changed at a time
	received []string // configurations that nodes were given, in their order
}

func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	w := &world{T: t, plane: controlplane.Start(t)}
	var err error
	if w.Client, err = client.New(w.plane.Admin(), client.Options{Scheme: controlplane.Scheme(t)}); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "pivot-fleet")
	script.Build(t, program, "machine-pivot/cmd/pivot-fleet")
	w.fleet = fleet.New(t, w.plane, "../../..", program)
	for i := range nodes {
		w.join(fmt.Sprintf("n%d", i))
	}
	if nodes > 0 {
		w.agents()
	}
	return w
}

// join adds a Ready node with a configuration of another cluster.
func (w *world) join(name string) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{workers: ""}, Annotations: map[string]string{
		api.DesiredConfig: "old", api.CurrentConfig: "old", api.StateOfNode: api.StateDone}}}
	if err := w.Create(w.Context(), n); err != nil {
		w.Fatal(err)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := w.Client.Status().Update(w.Context(), n); err != nil {
		w.Fatal(err)
	}
}

// agents stand in for the agents of all nodes.
func (w *world) agents() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			w.agentsOnce(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	w.Cleanup(func() { cancel(); <-ended })
}

func (w *world) agentsOnce(ctx context.Context) {
	var all corev1.NodeList
	if w.List(ctx, &all) != nil {
		return // the next time
	}
	changed := 0
	for i := range all.Items {
		n := &all.Items[i]
		desired := n.Annotations[api.DesiredConfig]
		if desired == n.Annotations[api.CurrentConfig] {
			continue
		}
		changed++
		if w.Patch(ctx, n, hasConfig(desired)) == nil {
			w.mu.Lock()
			w.received = append(w.received, desired)
			w.mu.Unlock()
		}
	}
	w.mu.Lock()
	w.most = max(w.most, changed)
	w.mu.Unlock()
}

// hasConfig returns the patch of a node by its agent when the node has a configuration.
func hasConfig(name string) client.Patch {
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q}}}`, api.CurrentConfig, name, api.StateOfNode, api.StateDone)
	return client.RawPatch(types.MergePatchType, []byte(body))
}

// pool returns the pool of the workers; an empty one if it cannot be read.
func (w *world) pool(ctx context.Context) *api.MachineConfigPool {
	var p api.MachineConfigPool
	_ = w.Get(ctx, client.ObjectKey{Name: "worker"}, &p) // the caller looks again
	return &p
}

// arrived waits until each node has the pool's configuration, which is another one than before, and returns it.
func (w *world) arrived(before string) string {
	w.Helper()
	var name string
	controlplane.Eventually(w, "each node has another configuration than "+before, func(ctx context.Context) bool {
		p := w.pool(ctx)
		name = p.Spec.Configuration.Name
		return name != "" && name != before && p.Status.Configuration.Name == name && p.Status.UpdatedMachineCount == p.Status.MachineCount && p.Status.MachineCount > 0
	})
	return name
}

func machineConfig(name, argument string) map[string]any {
	return map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
		"metadata": map[string]any{"name": name, "labels": map[string]string{role: "worker"}},
		"spec": map[string]any{"osImageURL": "registry.example/os@sha256:" + strings.Repeat("a", 64), "kernelArguments": []string{argument},
			"config": map[string]any{"ignition": map[string]any{"version": "3.4.0"}}}}
}

// TestFleet: two replicas, which replace one another, roll out a MachineConfig and a ContainerRuntimeConfig and take
// the latter back, one node at a time. A MachineConfig that cannot be merged changes no node, and the pool says why.
func TestFleet(t *testing.T) {
	w := newWorld(t, 4)
	w.seenByKubectl(w.rollOut())
}

// TestOperatorsSchemas: where the schemas of the machine-config operator are installed, the controllers use them as they
// are: the same story as TestFleet.
func TestOperatorsSchemas(t *testing.T) {
	w := newWorld(t, 4)
	for _, file := range operatorsSchemas(t) {
		w.plane.ApplyFile(file)
	}
	controlplane.Eventually(t, "the pools have the operator's columns, and not ours", func(context.Context) bool {
		return !slices.Contains(columns(w.table("mcp")), "Waiting")
	})
	w.rollOut()
}

// rollOut tells the story of TestFleet to four nodes, and returns the rendered MachineConfig that they have in the end.
func (w *world) rollOut() string {
	w.Helper()
	first := w.fleet.Start()
	w.plane.Apply(machineConfig("00-worker", "one"))
	w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
		"metadata": map[string]any{"name": "worker", "labels": map[string]string{"pools": "all"}}, "spec": map[string]any{
			"nodeSelector":          map[string]any{"matchLabels": map[string]string{workers: ""}},
			"machineConfigSelector": map[string]any{"matchLabels": map[string]string{role: "worker"}}}})
	one := w.arrived("")
	controlplane.Eventually(w, "the metrics have the updated nodes", func(ctx context.Context) bool {
		return first.Shows(ctx, `pivot_pool_updated_nodes{pool="worker"} 4`) && first.Shows(ctx, `pivot_render_degraded{pool="worker"} 0`)
	})

	second := w.fleet.Start()
	w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig", "metadata": map[string]any{"name": "pids"},
		"spec": map[string]any{"machineConfigPoolSelector": map[string]any{"matchLabels": map[string]string{"pools": "all"}},
			"containerRuntimeConfig": map[string]any{"pidsLimit": 4096}}})
	controlplane.Eventually(w, "the first node has begun", func(ctx context.Context) bool { return w.pool(ctx).Spec.Configuration.Name != one })
	w.fleet.Stop(first) // in the middle of the rollout
	two := w.arrived(one)

	if err := w.Delete(w.Context(), &api.ContainerRuntimeConfig{ObjectMeta: metav1.ObjectMeta{Name: "pids"}}); err != nil {
		w.Fatal(err)
	}
	if back := w.arrived(two); back != one {
		w.Errorf("without the ContainerRuntimeConfig, the pool has %s, want %s as before", back, one)
	}

	w.plane.Apply(machineConfig("50-bad", "fips=1"))
	controlplane.Eventually(w, "RenderDegraded names the argument", func(ctx context.Context) bool {
		return slices.ContainsFunc(w.pool(ctx).Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == api.PoolRenderDegraded && c.Status == api.True && strings.Contains(c.Message, "fips")
		})
	})
	controlplane.Eventually(w, "the metrics have it, too", func(ctx context.Context) bool {
		return second.Shows(ctx, `pivot_render_degraded{pool="worker"} 1`) && second.Shows(ctx, `leader_election_master_status{name="pivot-fleet-controller"} 1`)
	})
	metrics.Check(w, "../../../docs/cluster-view.md", "controller", second.Page(w.Context()))
	w.mu.Lock()
	defer w.mu.Unlock()
	want := slices.Concat(slices.Repeat([]string{one}, 4), slices.Repeat([]string{two}, 4), slices.Repeat([]string{one}, 4))
	if !slices.Equal(w.received, want) || w.most != 1 {
		w.Errorf("the nodes were given %q, up to %d at a time; want %q, 1", w.received, w.most, want)
	}
	return one
}

// seenByKubectl checks what "kubectl get mcp,mc,ctrcfg" shows, as with the machine-config operator: the short names,
// and the columns.
func (w *world) seenByKubectl(rendered string) {
	w.Helper()
	for short, want := range map[string]string{
		"mcp":    "Name Config Updated Updating Degraded MachineCount ReadyMachineCount UpdatedMachineCount DegradedMachineCount Waiting Age",
		"mc":     "Name GeneratedByController IgnitionVersion Age",
		"ctrcfg": "Name Rendered Age",
	} {
		table := w.table(short)
		if got := strings.Join(columns(table), " "); got != want {
			w.Errorf("%s has the columns %q, want %q", short, got, want)
		}
		for _, row := range table.Rows {
			if row.Cells[0] == rendered && (row.Cells[1] == nil || row.Cells[2] != "3.5.0") {
				w.Errorf("a rendered MachineConfig is shown as %v", row.Cells)
			}
			if short == "mcp" && (row.Cells[1] != rendered || row.Cells[2] != "True" || row.Cells[5] != float64(4) && row.Cells[5] != int64(4)) {
				w.Errorf("the pool is shown as %v", row.Cells)
			}
		}
	}
}

// table returns what kubectl shows of the objects of a kind, which is given by its short name.
func (w *world) table(short string) (table metav1.Table) {
	w.Helper()
	c := w.plane.Client(w.plane.Admin()).Discovery()
	kinds, err := c.ServerResourcesForGroupVersion("machineconfiguration.openshift.io/v1")
	if err != nil {
		w.Fatal(err)
	}
	i := slices.IndexFunc(kinds.APIResources, func(r metav1.APIResource) bool { return slices.Contains(r.ShortNames, short) })
	if i < 0 {
		w.Fatalf("no kind has the short name %s", short)
	}
	text, err := c.RESTClient().Get().AbsPath("/apis/machineconfiguration.openshift.io/v1/"+kinds.APIResources[i].Name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(w.Context())
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil {
		w.Fatal(err)
	}
	return table
}

// columns returns the names of the columns that kubectl shows without "-o wide".
func columns(table metav1.Table) (names []string) {
	for _, column := range table.ColumnDefinitions {
		if column.Priority == 0 {
			names = append(names, column.Name)
		}
	}
	return names
}
