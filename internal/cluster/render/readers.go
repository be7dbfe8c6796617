package render

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	applyrbac "k8s.io/client-go/applyconfigurations/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machine-pivot/internal/cluster/api"
)

// rolePrefix begins the names of roles and bindings. deploy/fleet/policies.yaml lets the controllers write no others.
const rolePrefix = "machine-pivot:pool:"

// bindAgain is after how much time what somebody has changed is written again.
const bindAgain = 10 * time.Minute

// readers gives each node the right to read what was rendered for its pool, and nothing else. Admission sees no reads, and
// RBAC cannot bind what a group may read to each of its members. So each pool has a role that names its rendered
// MachineConfigs, and a binding of the users of its nodes to that role.
//
// What a node says of itself decides nothing: its pool is that of its labels, and the names are those of what exists.
type readers struct {
	client client.Client
	last   map[string]written // by pool
}

// written is what was written of a pool.
type written struct {
	what string
	at   time.Time
}

// setupReaders adds the controller of the readers to a manager.
func setupReaders(m manager.Manager) error {
	r := &readers{m.GetClient(), map[string]written{}}
	rendered := predicate.And(predicate.NewPredicateFuncs(func(o client.Object) bool { return api.PoolOf(o.GetName()) != "" }), predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(m).Named("readers").
		Watches(&api.MachineConfigPool{}, once(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, once(), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesMetadata(&api.MachineConfig{}, once(), builder.WithPredicates(rendered)).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler. It looks at all pools at once, because they decide together which nodes each
// one has.
func (r *readers) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var pools api.MachineConfigPoolList
	var nodes corev1.NodeList
	configs := metadata()
	if err := errors.Join(r.client.List(ctx, &pools), r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy), r.client.List(ctx, configs, client.UnsafeDisableDeepCopy)); err != nil {
		return reconcile.Result{}, err
	}
	users, names := map[string][]string{}, map[string][]string{}
	for i := range nodes.Items {
		if claimed := api.PoolsOf(nodes.Items[i].Labels, pools.Items); len(claimed) == 1 {
			users[claimed[0]] = append(users[claimed[0]], "system:node:"+nodes.Items[i].Name)
		}
	}
	for i := range configs.Items {
		name := configs.Items[i].Name
		names[api.PoolOf(name)] = append(names[api.PoolOf(name)], name)
	}
	var failed []error
	for i := range pools.Items {
		p := &pools.Items[i]
		failed = append(failed, r.bind(ctx, p, slices.Sorted(slices.Values(names[p.Name])), slices.Sorted(slices.Values(users[p.Name]))))
	}
	return reconcile.Result{RequeueAfter: bindAgain}, errors.Join(failed...)
}

// bind writes the role and the binding of a pool. They are deleted with it.
func (r *readers) bind(ctx context.Context, p *api.MachineConfigPool, configs, users []string) error {
	now := written{fmt.Sprint(p.UID, configs, users), time.Now()}
	if last := r.last[p.Name]; last.what == now.what && now.at.Sub(last.at) < bindAgain {
		return nil
	}
	owner := applymeta.OwnerReference().WithAPIVersion(api.Operator().String()).WithKind("MachineConfigPool").WithName(p.Name).WithUID(p.UID)
	if len(configs) == 0 { // a rule without names is for all: this is the name of none
		configs = []string{api.RenderedPrefix + p.Name + "-"}
	}
	role := applyrbac.ClusterRole(rolePrefix + p.Name).WithOwnerReferences(owner).
		WithRules(applyrbac.PolicyRule().WithAPIGroups(api.OperatorGroup).WithResources(api.MachineConfigs).WithVerbs("get").WithResourceNames(configs...))
	binding := applyrbac.ClusterRoleBinding(rolePrefix + p.Name).WithOwnerReferences(owner).
		WithRoleRef(applyrbac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(rolePrefix + p.Name))
	for _, user := range users {
		binding.WithSubjects(applyrbac.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName(user))
	}
	as := []client.ApplyOption{client.FieldOwner("pivot-fleet"), client.ForceOwnership}
	if err := errors.Join(r.client.Apply(ctx, role, as...), r.client.Apply(ctx, binding, as...)); err != nil {
		return fmt.Errorf("cannot bind what the nodes of the pool %s read: %w", p.Name, err)
	}
	r.last[p.Name] = now
	return nil
}
