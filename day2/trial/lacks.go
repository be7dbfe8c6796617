package trial

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// lacks returns what prevents the running system from being confirmed, including failures to
// find out. The look is limited to the rest of the trial's time, but to no less than Look.
func (c *Conductor) lacks(ctx context.Context) []string {
	if since, err := c.Host.Uptime(); err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, max(c.trial().Limit()-since, Look), errors.New("the trial is over"))
		defer cancel()
	}
	lacks, err := c.Differences(ctx)
	if err != nil {
		lacks = append(lacks, err.Error())
	}
	if err := c.nothingStaged(); err != nil {
		lacks = append(lacks, err.Error())
	}
	lacks = append(lacks, c.Host.Unhealthy(ctx)...)
	for _, check := range c.trial().Checks {
		if _, err := c.Host.Run(ctx, "/bin/sh", "-c", check); err != nil {
			lacks = append(lacks, fmt.Sprintf("check %q fails: %s", check, strings.TrimSpace(strings.TrimPrefix(err.Error(), "/bin/sh -c "+check+":"))))
		}
	}
	return lacks
}
