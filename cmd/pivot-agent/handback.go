package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"machine-pivot/internal/cluster/node"
)

// handBack gives the node back to the machine-config-daemon, and says what that daemon will find.
func handBack(ctx context.Context, agent *node.Agent, out io.Writer) error {
	for {
		wait, done, err := agent.HandBack(ctx)
		if err != nil {
			return err
		}
		if done != nil {
			_, err := fmt.Fprint(out, done)
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
