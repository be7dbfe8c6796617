package update

import (
	"strings"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/problem"
)

// Policy is what a cluster decides about changes: its node disruption policy, and the sections whose
// changes it allows.
type Policy struct{ disruption.Cluster }

// DefaultPolicy returns the policy of a cluster without a policy of its own.
func DefaultPolicy() Policy { return Policy{disruption.DefaultCluster()} }

// ReadPolicy reads the policy of a cluster: its object MachineConfiguration. The report has all
// problems.
func ReadPolicy(file string, data []byte) (Policy, problem.Report) {
	c, report := disruption.ReadCluster(file, data)
	return Policy{c}, report
}

// Describe describes an action for users.
func Describe(a disruption.Action) string {
	switch a.Type {
	case disruption.Drain:
		return "drain the node"
	case disruption.DaemonReload, disruption.Reload, disruption.Restart:
		return "systemctl " + a.String()
	case disruption.Special:
		return "systemctl reload crio, after a drain unless only mirrors by digest are added"
	}
	return a.String()
}

// chosen returns the actions of a rule, and the rule for display.
func chosen(r disruption.Rule, found bool) (actions []disruption.Action, because string) {
	switch {
	case !found:
		return []disruption.Action{{Type: disruption.Reboot}}, "no policy for it"
	case r.Keys:
		because = "the policy for SSH keys"
	default:
		because = strings.TrimSpace("the policy for " + r.Path + r.Unit)
	}
	return append([]disruption.Action{}, r.Actions...), because
}

// nothing are the actions for what the operator does not compare.
func nothing() []disruption.Action { return []disruption.Action{{Type: disruption.None}} }
