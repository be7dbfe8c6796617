package api

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// HasChanged reports whether an API server refuses a request because an object is not what was read: somebody has changed,
// deleted or made it meanwhile. Whoever reads it again can go on, so it is no error to tell people about. A patch must carry
// the resourceVersion itself for that: a failed test of a JSON patch is an invalid request.
func HasChanged(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}
