package render

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/machineconfig"
)

// errDeleted means that an object that was read is gone, or is another one of the same name by now.
var errDeleted = errors.New("it was deleted meanwhile")

// create creates a MachineConfig.
func (r *renderer) create(ctx context.Context, mc *api.MachineConfig) error {
	if err := r.cached.Create(ctx, mc); err != nil {
		return fmt.Errorf("cannot create the MachineConfig %s: %w", mc.Name, err)
	}
	return nil
}

// remove deletes a MachineConfig, unless it has changed since it was read.
func (r *renderer) remove(ctx context.Context, o *metav1.PartialObjectMetadata) error {
	uid, version := o.UID, o.ResourceVersion
	o.TypeMeta = metav1.TypeMeta{APIVersion: machineconfig.APIVersion, Kind: machineconfig.Kind}
	err := r.cached.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot delete the MachineConfig %s: %w", o.Name, err)
	}
	return nil
}

// refusal returns why the API server refuses an object whatever happens; "" if the error, or nil, says nothing
// like that.
func refusal(err error, mc *api.MachineConfig) string {
	switch {
	case err == nil:
		return ""
	case tooLarge(err):
		return fmt.Sprintf("the MachineConfig %s has %d bytes of JSON in its spec, more than the cluster stores in one object", mc.Name, len(mc.Spec.Raw))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fmt.Sprintf("the API server refuses the MachineConfig %s: %v", mc.Name, err)
	}
	return ""
}

// tooLarge reports whether an object is larger than the API server, or etcd behind it, accepts. Etcd's errors
// have no type at the API server.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) ||
		strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max")
}

// calm has a reconciler try again soon if an object was changed by somebody else meanwhile. That is no error, so the library
// does not log it as one, and does not wait longer each time.
func calm(f reconcile.Func) reconcile.Func {
	return func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		result, err := f(ctx, request)
		if conflict(err) {
			return reconcile.Result{RequeueAfter: firstRetry}, nil
		}
		return result, err
	}
}

// conflict reports whether an error means that a cache was behind, so that another attempt follows soon.
func conflict(err error) bool {
	return api.HasChanged(err) || errors.Is(err, errDeleted)
}
