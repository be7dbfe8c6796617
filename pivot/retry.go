package pivot

import (
	"time"

	"machine-pivot/internal/retry"
)

// DefaultRetry returns a policy for a machine whose registry may come up at about the same time
// as the machine.
func DefaultRetry() retry.Policy {
	return retry.Policy{First: time.Second, Cap: 30 * time.Second, Bound: 20 * time.Minute}
}
