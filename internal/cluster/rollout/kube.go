package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
)

// Kube is the fleet behind an API server.
type Kube struct {
	Cached client.Reader // of Nodes, NodeSystems, MachineConfigPools and PoolRollouts
	Direct client.Reader // asks the API server
	Writer client.Writer
	Status client.SubResourceWriter
	Events events.EventRecorder
	Now    func() time.Time
	Self   string

	checks  checker
	refused map[string]refusal // by node
	// by node: when its marks were refused, and when it was first seen that it is not Ready
	unmarked, down map[string]time.Time
	jobProblems    map[string]string // by Job: why it could not be created
	healthChecks   []HealthCheck
	healthChecksAt time.Time
}

// refusal is why a node could not be changed, at a time.
type refusal struct {
	reason string
	at     time.Time
}

// Fleet implements Cluster. What it returns shares memory with the caches, and is only read. One call at a time
// is allowed.
func (k *Kube) Fleet(ctx context.Context) (Fleet, error) {
	f := Fleet{Now: k.Now(), Self: k.Self, Workloads: map[api.WorkloadReference]string{}}
	var nodes corev1.NodeList
	var systems api.NodeSystemList
	var pools api.MachineConfigPoolList
	var rollouts api.PoolRolloutList
	for _, list := range []client.ObjectList{&nodes, &systems, &pools, &rollouts} {
		if err := k.Cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return Fleet{}, fmt.Errorf("cannot read the fleet: %w", err)
		}
	}
	bySystem := map[string]*api.NodeSystem{}
	for i := range systems.Items {
		bySystem[systems.Items[i].Name] = &systems.Items[i]
	}
	f.HealthChecks = k.readHealthChecks(ctx, f.Now)
	before := k.down
	down, refused := k.seeDown(nodes.Items, f.Now), map[string]refusal{}
	for i := range nodes.Items {
		n := nodeOf(&nodes.Items[i], bySystem[nodes.Items[i].Name])
		if r, is := k.refused[n.Name]; is {
			if refused[n.Name], n.Denied = r, r.reason; f.Now.Sub(r.at).Abs() < longest {
				n.Refused = r.reason
			}
		}
		n.NotReadySince = down[n.Name]
		if since, was := before[n.Name]; was && n.NotReadySince.IsZero() {
			n.Away = f.Now.Sub(since)
		}
		f.Nodes = append(f.Nodes, n)
	}
	k.refused = refused
	if err := k.readPools(ctx, &f, pools.Items, rollouts.Items); err != nil {
		return Fleet{}, err
	}
	f.Jobs = k.readJobs(ctx, f.Pools)
	if err := k.readStaticPods(ctx, &f); err != nil {
		return Fleet{}, err
	}
	if k.checks == nil {
		k.checks = checker{}
	}
	k.checks.checkFleet(&f, nodes.Items)
	sortFleet(&f)
	return f, nil
}

// seeDown returns since when nodes are not Ready, by the controller's own clock, from when it has seen that. The clocks of
// others may be wrong: a node would be missing at once.
func (k *Kube) seeDown(nodes []corev1.Node, now time.Time) map[string]time.Time {
	before := k.down
	k.down = map[string]time.Time{}
	for i := range nodes {
		n := &nodes[i]
		if isReady(n) {
			continue
		}
		since, known := before[n.Name]
		if !known || since.After(now) {
			since = now
		}
		k.down[n.Name] = since
	}
	return k.down
}

// readPools adds the pools to a fleet, and the workloads that they name.
func (k *Kube) readPools(ctx context.Context, f *Fleet, pools []api.MachineConfigPool, rollouts []api.PoolRollout) error {
	byRollout := map[string]*api.PoolRollout{}
	for i := range rollouts {
		byRollout[rollouts[i].Name] = &rollouts[i]
	}
	for i := range pools {
		f.Pools = append(f.Pools, poolOf(&pools[i], byRollout[pools[i].Name]))
		delete(byRollout, pools[i].Name)
		if err := k.readWorkloads(ctx, f.Pools[i].Spec.Checks.Workloads, f.Workloads); err != nil {
			return err
		}
	}
	for _, r := range byRollout {
		if p, used := orphanOf(r); used {
			f.Pools = append(f.Pools, p)
		}
	}
	return nil
}

// readWorkloads reads the workloads of a pool's checks: few, so that no cache of all of the cluster is wanted. One that
// cannot be read, because of its name or a right, stops the pool that names it, which says so, and no other one.
func (k *Kube) readWorkloads(ctx context.Context, of []api.WorkloadReference, into map[api.WorkloadReference]string) error {
	for _, w := range of {
		problem, err := k.workload(ctx, w)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("cannot read %s: %w", workloadName(w), ctx.Err())
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			problem = fmt.Sprintf("it cannot be read: %v", err)
		}
		into[w] = problem
	}
	return nil
}

func (k *Kube) workload(ctx context.Context, w api.WorkloadReference) (string, error) {
	key := client.ObjectKey{Namespace: w.Namespace, Name: w.Name}
	if w.Kind == "DaemonSet" {
		var d appsv1.DaemonSet
		err := k.Direct.Get(ctx, key, &d)
		s := d.Status
		return workloadState(d.Generation, s.ObservedGeneration, s.DesiredNumberScheduled, s.UpdatedNumberScheduled, s.NumberAvailable), err
	}
	var d appsv1.Deployment
	err := k.Direct.Get(ctx, key, &d)
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	return workloadState(d.Generation, d.Status.ObservedGeneration, want, d.Status.UpdatedReplicas, d.Status.AvailableReplicas), err
}

// Fence implements Cluster.
func (k *Kube) Fence(ctx context.Context, n Node, token string) error {
	patch := metadata(n, map[string]any{Released: token, api.Download: nil})
	if n.isMarked() {
		patch["spec"] = map[string]any{"taints": n.taints(false)}
	}
	if g := n.guardOf(); g != nil && g.Until.IsZero() {
		guardPatch(&n, patch, k.Now().Add(guardFor))
	}
	return k.change(ctx, n, patch)
}

// Mark implements Cluster. Who forbids the marks forbids nothing else, and is asked again a minute later.
func (k *Kube) Mark(ctx context.Context, m Marked) error {
	n := m.Node
	if k.Now().Sub(k.unmarked[n.Name]).Abs() < longest {
		return nil
	}
	patch := metadata(n, nil)
	if m.Pending != n.isMarked() {
		patch["spec"] = map[string]any{"taints": n.taints(m.Pending)}
	}
	switch {
	case m.Unguard:
		k.skipRemediation(ctx, n, false)
		unguardPatch(&n, patch)
	case !m.GuardEnd.IsZero():
		guardPatch(&n, patch, m.GuardEnd)
	}
	err := k.Writer.Patch(ctx, &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: n.Name}}, mergePatch(patch))
	if !isFinal(err) {
		return conflict("node "+n.Name, err)
	}
	if k.unmarked == nil {
		k.unmarked = map[string]time.Time{}
	}
	k.unmarked[n.Name] = k.Now()
	return nil
}

// Give implements Cluster.
func (k *Kube) Give(ctx context.Context, c Change) error {
	n := c.Node
	notes := map[string]any{api.DesiredConfig: c.Config, api.Download: nil, api.ForceDrainAfter: nil}
	if c.Config == "" {
		notes[api.DesiredConfig] = nil
	}
	if c.ForceAfter > 0 {
		notes[api.ForceDrainAfter] = c.ForceAfter.String()
	}
	if n.Annotations[api.FailedConfig] == c.Config {
		notes[api.FailedConfig] = nil
	}
	patch := metadata(n, notes)
	guardPatch(&n, patch, time.Time{})
	k.skipRemediation(ctx, n, true)
	return k.change(ctx, n, patch)
}

// AskDownload implements Cluster.
func (k *Kube) AskDownload(ctx context.Context, n Node, config string) error {
	return k.change(ctx, n, metadata(n, map[string]any{api.Download: config}))
}

// metadata returns a patch of the version of a node that is known, which sets annotations, or removes those that are nil. A
// null instead of the object would remove all of them, also those of others.
func metadata(n Node, annotations map[string]any) map[string]any {
	if annotations == nil {
		annotations = map[string]any{}
	}
	return map[string]any{"metadata": map[string]any{"resourceVersion": n.Version, "annotations": annotations}}
}

// change patches a node.
func (k *Kube) change(ctx context.Context, n Node, patch map[string]any) error {
	object := &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: n.Name}}
	err := k.Writer.Patch(ctx, object, mergePatch(patch))
	if err == nil {
		delete(k.refused, n.Name)
	}
	if !isFinal(err) {
		return conflict("node "+n.Name, err)
	}
	if k.refused == nil {
		k.refused = map[string]refusal{}
	}
	k.refused[n.Name] = refusal{api.BoundedReason(err.Error()), k.Now()}
	return fmt.Errorf("node %s: %w: %w", n.Name, ErrRefused, err)
}

// isFinal reports whether an API server has judged a request, and would do so again.
func isFinal(err error) bool {
	status, answered := errors.AsType[*apierrors.StatusError](err)
	if !answered {
		return false
	}
	switch code := status.Status().Code; code {
	case 401, 404, 408, 409, 429: // HTTP's Unauthorized, Not Found, Request Timeout, Conflict, Too Many Requests
		return false
	default:
		return code >= 400 && code < 500
	}
}

// Exists implements Cluster.
func (k *Kube) Exists(ctx context.Context, node string) (bool, error) {
	n := &v1.PartialObjectMetadata{TypeMeta: v1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	err := k.Direct.Get(ctx, client.ObjectKey{Name: node}, n)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Take implements Cluster.
func (k *Kube) Take(ctx context.Context, p Pool, s api.PoolRolloutStatus) error {
	r := &api.PoolRollout{ObjectMeta: v1.ObjectMeta{Name: p.Name}}
	if p.RolloutVersion == "" {
		if hasSlots(s) {
			r.Finalizers = []string{Finalizer}
		}
		if err := k.Writer.Create(ctx, r); err != nil {
			return conflict("PoolRollout "+p.Name, err)
		}
		p.RolloutVersion = r.ResourceVersion
	}
	// It replaces the status as a whole: a merge would keep the slots of an empty list.
	patch := []map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": p.RolloutVersion},
		{"op": "add", "path": "/status", "value": s},
	}
	return conflict("PoolRollout "+p.Name, k.Status.Patch(ctx, r, client.RawPatch(types.JSONPatchType, text(patch))))
}

// Hold implements Cluster.
func (k *Kube) Hold(ctx context.Context, p Pool, finalizers []string) (string, error) {
	r := &api.PoolRollout{ObjectMeta: v1.ObjectMeta{Name: p.Name}}
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": p.RolloutVersion, "finalizers": finalizers}}
	err := k.Writer.Patch(ctx, r, mergePatch(patch))
	return r.ResourceVersion, conflict("PoolRollout "+p.Name, err)
}

// Show implements Cluster.
func (k *Kube) Show(ctx context.Context, p Pool, s api.MachineConfigPoolStatus) error {
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": p.Version}, "status": s}
	object := &api.MachineConfigPool{ObjectMeta: v1.ObjectMeta{Name: p.Name}}
	return conflict("MachineConfigPool "+p.Name, k.Status.Patch(ctx, object, mergePatch(patch)))
}

// Record implements Cluster. The recorder sends events later, and joins equal ones, and no others.
func (k *Kube) Record(_ context.Context, p Pool, e Event) error {
	object := &api.MachineConfigPool{ObjectMeta: v1.ObjectMeta{Name: p.Name, UID: types.UID(p.UID)}}
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	action, note := api.EventOf("Rollout", e.Message)
	k.Events.Eventf(object, nil, kind, e.Reason, action, "%s", note)
	return nil
}

func mergePatch(patch any) client.Patch { return client.RawPatch(types.MergePatchType, text(patch)) }

// text returns a patch as JSON, which each of them can be written as.
func text(patch any) []byte {
	out, err := json.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("a patch cannot be written as JSON: %v", err))
	}
	return out
}

// conflict returns ErrConflict for the error of a request about an object that is not what it was any more.
func conflict(object string, err error) error {
	if api.HasChanged(err) {
		return fmt.Errorf("%s: %w", object, ErrConflict)
	}
	return err
}
