package lab

import (
	"fmt"
	"io"
	"strings"
)

// Claims are what must hold of machines. Each is printed, with whether it does.
type Claims struct {
	To     io.Writer
	Failed int // how many do not hold
}

// Add makes a claim.
func (c *Claims) Add(holds bool, format string, args ...any) {
	mark := "ok "
	if !holds {
		mark = "NOT"
		c.Failed++
	}
	fmt.Fprintf(c.To, "%s  %s\n", mark, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Err says how many claims do not hold.
func (c *Claims) Err() error {
	if c.Failed > 0 {
		return fmt.Errorf("%d claims do not hold", c.Failed)
	}
	return nil
}
