package bootlab

import (
	"fmt"
	"io"
	"strings"
)

// Claims prints statements about machines, each with whether it holds, and counts those that do not.
type Claims struct {
	To     io.Writer
	Failed int // number of claims that do not hold
}

// Add prints a claim and whether it holds.
func (c *Claims) Add(holds bool, format string, args ...any) {
	mark := "ok "
	if !holds {
		mark = "NOT"
		c.Failed++
	}
	fmt.Fprintf(c.To, "%s  %s\n", mark, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Err returns an error if any claims do not hold.
func (c *Claims) Err() error {
	if c.Failed > 0 {
		return fmt.Errorf("%d claims do not hold", c.Failed)
	}
	return nil
}
