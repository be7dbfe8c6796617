package follow

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
)

// pool returns the MachineConfigPool of a PoolRollout. If the spec selects nodes, it makes it, or corrects its own one.
func (f *follower) pool(ctx context.Context, r *api.PoolRollout) (*api.MachineConfigPool, error) {
	p := &api.MachineConfigPool{}
	err := f.direct.Get(ctx, client.ObjectKeyFromObject(r), p)
	missing := apierrors.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return nil, err
	case r.Spec.NodeSelector == nil && missing:
		return nil, fault.New(fault.BadInput, "there is no MachineConfigPool %s", r.Name).WithHint("set spec.nodeSelector of the PoolRollout")
	case r.Spec.NodeSelector == nil:
		return p, nil
	case !missing && !metav1.IsControlledBy(p, r):
		return nil, fault.New(fault.BadInput, "cannot make the MachineConfigPool %s: there is one that this PoolRollout does not own", r.Name).
			WithHint("remove spec.nodeSelector of the PoolRollout to use that, or delete it")
	}
	before := p.DeepCopyObject().(*api.MachineConfigPool)
	p.Spec.NodeSelector, p.Spec.MaxUnavailable = r.Spec.NodeSelector, r.Spec.MaxUnavailable
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: role(r)}
	if missing {
		p.Name, p.OwnerReferences = r.Name, owner(r)
		err = f.cached.Create(ctx, p)
	} else if !apiequality.Semantic.DeepEqual(before.Spec, p.Spec) {
		err = f.cached.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	} else {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write the MachineConfigPool %s: %w", r.Name, err)
	}
	return p, nil
}

// role returns the label of the MachineConfigs of a pool.
func role(r *api.PoolRollout) map[string]string {
	return map[string]string{authored.RoleLabel: r.Name}
}

func owner(r *api.PoolRollout) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(r, api.Own().WithKind("PoolRollout"))}
}
