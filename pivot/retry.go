package pivot

import (
	"time"

	"machine-pivot/internal/retry"
)

// DefaultRetry returns a policy for a machine with a registry that may come up at about the same time.
func DefaultRetry() retry.Policy {
	return retry.Policy{First: time.Second, Cap: 30 * time.Second, Bound: 20 * time.Minute}
}
