package disruption

import (
	systemdunits "machine-pivot/systemd-units"

	"machine-pivot/internal/hostfiles"
)

// RulesPath is the file with a machine's own rules.
const RulesPath = "/etc/pivot/disruption.yaml"

// PullSecretPath is the administrator's pull secret for images of the system. pivot reads it at each pull.
const PullSecretPath = "/etc/ostree/auth.json"

// Defaults returns the rules of a machine without rules of its own: those of the machine-config operator, and that changes of
// RulesPath and PullSecretPath need nothing. Nor do those of the unit that projects entries outside of /etc during boot: a
// change of the running system projects them itself.
func Defaults() Rules { return Rules{builtIn()} }

func builtIn() []Rule {
	rules := []Rule{{Path: RulesPath, Ours: true}, {Path: PullSecretPath, Ours: true}, {Unit: systemdunits.Project, Ours: true}}
	for _, r := range OperatorRules() {
		if r.Path != "" {
			r.Path = hostfiles.Resolved(r.Path)
		}
		r.Drain, r.Actions = drainOf(r.Actions), onHost(r.Actions)
		rules = append(rules, r)
	}
	return rules
}

// drainOf returns what actions of a cluster's policy say about a drain.
func drainOf(actions []Action) Draining {
	drain := DrainNever
	for _, a := range actions {
		switch a.Type {
		case Drain:
			return DrainAlways
		case Special:
			drain = DrainByContent
		}
	}
	return drain
}

// onHost returns what actions of a cluster's policy are on a host without a cluster. There is no node to drain, and
// Special is its reload of CRI-O without the drain.
func onHost(actions []Action) (all []Action) {
	for _, a := range actions {
		switch a.Type {
		case None, Drain:
		case Special:
			all = append(all, Action{Reload, crio})
		default:
			all = append(all, a)
		}
	}
	return all
}
