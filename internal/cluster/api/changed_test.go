package api_test

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machine-pivot/internal/cluster/api"
)

// TestHasChanged: what another attempt ends at once, also deep in other errors, and nothing else.
func TestHasChanged(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, c := range []struct {
		err     error
		changed bool
	}{
		{apierrors.NewConflict(nodes, "n", nil), true},
		{apierrors.NewNotFound(nodes, "n"), true},
		{apierrors.NewAlreadyExists(nodes, "n"), true},
		{apierrors.NewForbidden(nodes, "n", errors.New("no")), false},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", nil), false},
		{apierrors.NewInternalError(errors.New("etcd")), false},
		{apierrors.NewTooManyRequestsError("wait"), false},
		{errors.New("conflict"), false},
		{nil, false},
	} {
		wrapped := error(nil)
		if c.err != nil {
			wrapped = errors.Join(nil, fmt.Errorf("cannot write: %w", c.err))
		}
		if api.HasChanged(c.err) != c.changed || api.HasChanged(wrapped) != c.changed {
			t.Errorf("%v: %t", c.err, !c.changed)
		}
	}
}
