package cli

import (
	"machine-pivot/internal/fault"
	"machine-pivot/internal/pinning"
)

// Workloads parses the values of --cpuset, which can be repeated: WORKLOAD=SET, each workload
// once.
func Workloads(texts []string) (pinning.Workloads, error) {
	workloads := pinning.Workloads{}
	for _, text := range texts {
		workload, set, err := pinning.ParseAssignment(text)
		if err != nil {
			return nil, fault.New(fault.BadInput, "cannot use --cpuset: %w", err)
		}
		if _, twice := workloads[workload]; twice {
			return nil, fault.New(fault.BadInput, "cannot use --cpuset: workload %s is given twice", workload).WithHint("give each workload once: --cpuset WORKLOAD=CPUS")
		}
		workloads[workload] = set
	}
	return workloads, nil
}
