package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/printable"
)

// handBack gives the node back to the machine-config-daemon, and says what that daemon will find.
func handBack(ctx context.Context, agent *node.Agent, out io.Writer) error {
	for {
		wait, done, err := agent.HandBack(ctx)
		if err != nil {
			return err
		}
		if done != nil {
			return printHanded(out, *done)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func printHanded(out io.Writer, h node.Handed) error {
	if h.Nothing {
		_, err := fmt.Fprintln(out, "nothing to do: the node is the machine-config-daemon's, and has "+printable.Line(h.Current))
		return err
	}
	lines := []string{"the host and the node's annotations say that the node has " + h.Current + ", and is Done"}
	if h.Uncordoned {
		lines = append(lines, "the node is uncordoned")
	}
	if len(h.LeftOut) > 0 {
		lines = append(lines, "the machine lacks what only an installation can apply, and the daemon does not notice that: "+strings.Join(h.LeftOut, ", "))
	}
	if h.Desired != h.Current {
		lines = append(lines, "when the machine-config-daemon starts, it updates the node to "+h.Desired)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, printable.Line(line)); err != nil {
			return err
		}
	}
	return nil
}
