package controlplane

import (
	"context"
	"time"

	"machine-pivot/test/worlds/testenv"
)

// patience is how long a state is waited for. What is waited for takes milliseconds on an idle host; a
// wait that ends by this limit means that it never happens.
const patience = 2 * time.Minute

// Eventually waits until a state is reached, which other processes bring about, and fails the test if
// that never happens.
func Eventually(t testenv.T, what string, reached func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !reached(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("this never happens: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
