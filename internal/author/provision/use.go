package provision

import (
	"context"
	"errors"
	"net/http"
)

// Guard decides who gets a config.
type Guard interface {
	// Admit returns nil if a request is refused. What it returns depends on the request and the role, and not
	// on whether there is such a role.
	Admit(r *http.Request, role string) Use
}

// Use counts that a config is about to be sent. It is called only when there is one to send, so that a
// request that fails costs nothing. Its error is ErrSpent if it must not be sent; after any other one the
// client is asked to retry.
type Use func(context.Context) error

// ErrSpent is the error of a Use for what has been used as often as it may be.
var ErrSpent = errors.New("it has been used as often as it may be")

// unauthorized refuses a request. All reasons look the same to a client: there is no such role, no such
// token, or it is another role's, has expired or is spent.
func unauthorized(w http.ResponseWriter) int {
	w.Header().Set("WWW-Authenticate", "Bearer")
	w.Header().Set("Cache-Control", "no-store")
	return refuse(w, http.StatusUnauthorized, "no valid token for this config")
}
