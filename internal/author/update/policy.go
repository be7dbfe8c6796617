package update

import (
	"strings"

	"machine-pivot/internal/disruption"
)

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
		return only(disruption.Reboot), "no policy for it"
	case r.Keys:
		because = "the policy for SSH keys"
	default:
		because = strings.TrimSpace("the policy for " + r.Path + r.Unit)
	}
	return append([]disruption.Action{}, r.Actions...), because
}

// only returns an action that needs no service, alone.
func only(action disruption.Type) []disruption.Action {
	return []disruption.Action{{Type: action}}
}
