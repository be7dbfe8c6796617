package hostpivot

import (
	"context"
	"errors"
	"fmt"
	"os"

	"machine-pivot/internal/api"
	"machine-pivot/internal/fault"
)

// Workloads are the workload types of CPU partitioning that a host has.
type Workloads struct {
	Types []string // in alphabetical order
	// Problem is why they are not known, for people; "" if they are.
	Problem string
}

// Workloads asks pivot for the workload types of the host. One that is not booted from an ostree deployment has
// none.
func (s *Systemd) Workloads(ctx context.Context) (Workloads, error) {
	if _, err := os.Stat(s.path(ostreeFile)); errors.Is(err, os.ErrNotExist) {
		return Workloads{}, nil
	} else if err != nil {
		return Workloads{}, fmt.Errorf("cannot look at the host: %w", err)
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return Workloads{}, err
	}
	defer conn.Close()
	var status struct {
		Partitioning *struct {
			Workloads []string `json:"workloads"`
			Problem   string   `json:"problem"`
		} `json:"partitioning"`
	}
	if err := s.ask(ctx, conn, api.Status, &status, "status", "-o", "json"); err != nil {
		return Workloads{}, err
	}
	if status.Partitioning == nil {
		return Workloads{}, fault.New(fault.Refused, "cannot read the workload types of the host: its pivot does not report them").
			WithHint("install the agent and pivot of one release")
	}
	return Workloads{Types: status.Partitioning.Workloads, Problem: status.Partitioning.Problem}, nil
}
