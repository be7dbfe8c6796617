package pivot

import (
	"time"

	"machine-pivot/internal/retry"
)

// DefaultRetry suits a machine whose registry comes up at about the same time.
func DefaultRetry() retry.Policy {
	return retry.Policy{First: time.Second, Cap: 30 * time.Second, Bound: 20 * time.Minute}
}
