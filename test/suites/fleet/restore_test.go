package fleet_test

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// backup is what etcd had at a revision of what a rollout uses.
type backup struct {
	nodes    map[string]*corev1.Node
	pools    api.MachineConfigPoolList
	rollouts api.PoolRolloutList
	releases map[string]int  // of the pools' MachineConfigs
	taken    map[string]bool // nodes with a slot
}

// backUp is what an administrator does each night. f.mu is held.
func (f *simulated) backUp(ctx context.Context) error {
	b := &backup{nodes: map[string]*corev1.Node{}, releases: maps.Clone(f.releases), taken: map[string]bool{}}
	var nodes corev1.NodeList
	if err := f.List(ctx, &nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		b.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	same := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: nodes.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}}
	for _, list := range []client.ObjectList{&b.pools, &b.rollouts} {
		if err := f.List(ctx, list, same); err != nil {
			return err
		}
	}
	for _, r := range b.rollouts.Items {
		for _, name := range r.Status.Taken {
			b.taken[name] = true
		}
	}
	f.backup = b
	return nil
}

// restore brings back what the backup has, as etcdutl does with --bump-revision: all objects get new versions. The
// controllers do not run meanwhile. Machines go on with what they do, and kubelets and agents report at once how they are.
// A node that came later is let in by its agent. f.mu is held, and no machine writes.
func (f *simulated) restore(ctx context.Context) error {
	b := f.backup
	f.backup, f.restores = nil, false
	for _, s := range f.slots {
		s.Hold()
		defer s.Release()
	}
	errs, names := make(chan error, 2*sizeOfFleet), make(chan string, 2*sizeOfFleet)
	for name := range f.nodes {
		names <- name
	}
	close(names)
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 20 {
		all.Go(func() {
			for name := range names {
				version, err := f.restoreNode(ctx, name, b.nodes[name])
				if err != nil && !apierrors.IsNotFound(err) {
					errs <- err
				}
				mu.Lock()
				f.restored[name] = version
				mu.Unlock()
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		return err
	}
	f.excused = map[string]bool{}
	for name := range f.nodes {
		f.writing[name] = f.restored[name]
		old := b.nodes[name]
		f.excused[name] = !b.taken[name] || old == nil || f.machines[name].IsBusyWithout(old.Annotations[api.DesiredConfig])
		if f.writing[name] == 0 { // it was deleted
			delete(f.writing, name)
		}
	}
	f.count.restores++
	return f.restorePools(ctx, b)
}

// restoreNode restores what is written on a node, and returns its version. Whoever has read the node before is refused.
func (f *simulated) restoreNode(ctx context.Context, name string, old *corev1.Node) (uint64, error) {
	if old == nil {
		running := f.machines[name].Running
		old = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: f.nodes[name].Labels, Annotations: map[string]string{
			api.DesiredConfig: running, api.CurrentConfig: running, api.StateOfNode: api.StateDone}}}
	}
	for {
		var now corev1.Node
		if err := f.Get(ctx, client.ObjectKey{Name: name}, &now); err != nil {
			return 0, err
		}
		annotations := changed(now.Annotations, old.Annotations)
		annotations["example.com/restored"] = now.ResourceVersion // it is another version in any case
		err := f.merge(ctx, &now, map[string]any{
			"metadata": map[string]any{"resourceVersion": now.ResourceVersion, "annotations": annotations, "labels": changed(now.Labels, old.Labels)},
			"spec":     map[string]any{"unschedulable": old.Spec.Unschedulable, "taints": old.Spec.Taints}})
		if !apierrors.IsConflict(err) {
			return number(now.ResourceVersion), err
		}
	}
}

// restorePools restores the pools and their MachineConfigs, and makes the PoolRollouts anew.
func (f *simulated) restorePools(ctx context.Context, b *backup) error {
	for _, p := range b.pools.Items {
		if err := f.release(ctx, p.Name, b.releases[p.Name]); err != nil {
			return err
		}
		patch := map[string]any{"spec": map[string]any{"paused": p.Spec.Paused, "configuration": p.Spec.Configuration}}
		if err := f.merge(ctx, &api.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}, patch); err != nil {
			return err
		}
	}
	for _, name := range poolNames {
		r := &api.PoolRollout{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := f.merge(ctx, r, map[string]any{"metadata": map[string]any{"finalizers": nil}}); client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := f.Delete(ctx, r); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	for _, old := range b.rollouts.Items {
		r := &api.PoolRollout{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Finalizers: old.Finalizers}, Spec: old.Spec}
		if err := f.Create(ctx, r); err != nil {
			return err
		}
		r.Status = old.Status
		if err := f.Client.Status().Update(ctx, r); err != nil {
			return err
		}
		if old.DeletionTimestamp != nil {
			if err := f.Delete(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// isExcused reports whether a node is disturbed by what it was given after the backup, which nobody knows any more.
func (f *simulated) isExcused(name string, n *rollout.Node) bool {
	if f.excused[name] && number(n.Version) >= f.restored[name] && !f.machines[name].Disturbed() {
		delete(f.excused, name)
	}
	return f.excused[name]
}

// isFrozen reports whether somebody's policy denies each change of a node by the controllers.
func isFrozen(n *rollout.Node) bool { _, is := n.Labels[frozen]; return is }

const frozen = "example.com/frozen"

// applyPolicy makes the policy.
func (f *simulated) applyPolicy(account string) {
	f.Helper()
	f.plane.Apply(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": "frozen"}, "spec": map[string]any{
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"UPDATE"}, "resources": []string{"nodes"}}}},
		"matchConditions":  []any{map[string]any{"name": "controllers", "expression": "request.userInfo.username == '" + account + "'"}},
		"validations":      []any{map[string]any{"expression": "!('" + frozen + "' in object.metadata.labels)", "message": "the node is frozen"}}}})
	f.plane.Apply(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": "frozen"}, "spec": map[string]any{
		"policyName": "frozen", "validationActions": []string{"Deny"}}})
}

// freeze begins or ends that for a node.
func (f *simulated) freeze(ctx context.Context, n *rollout.Node, on bool) {
	label := map[string]any{frozen: nil}
	if on {
		label[frozen] = ""
	}
	name := n.Name
	f.write(func() error {
		return f.merge(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, map[string]any{"metadata": map[string]any{"labels": label}})
	})
}

// fix gives each pool that has or gets dead kubelets a MachineConfig with which they run.
func (f *simulated) fix() {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pool := range poolNames {
		if slices.ContainsFunc(slices.Collect(maps.Keys(f.nodes)), func(name string) bool {
			m := f.machines[name]
			return poolOf(f.nodes[name]) == pool && (m.IsDead() || m.IsDeadWith(f.pools[pool].configuration))
		}) {
			f.count.fixes++
			if err := f.release(f.Context(), pool, 9); err != nil {
				f.fault("%v", err)
			}
		}
	}
}
