// Package disruption has the rules that say what a change of an entry needs to take effect:
// nothing, a reload or restart of services, or a reboot.
//
// The rules follow OpenShift's node disruption policy: its defaults, its format, and its choice
// of the rule with the longest path. operator.go has the operator's tables, of one date. Source of
// the format: the type MachineConfiguration of openshift/api, at commit 2a3d7391 (2026-08-22). The
// package does no I/O.
package disruption

import (
	"cmp"
	"path"
	"slices"
	"sort"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
)

// Type is the type of an Action, as the policy names it.
type Type string

// The types. A Reboot replaces all other actions.
const (
	None         Type = "None"
	DaemonReload Type = "DaemonReload" // systemd reads its units again
	Reload       Type = "Reload"       // of a service
	Restart      Type = "Restart"      // of a service
	Reboot       Type = "Reboot"
	Drain        Type = "Drain" // of a node; only in a cluster
	// Special is the operator's action for registries.conf, only in a cluster: reload CRI-O, after
	// draining the node unless the change only adds mirrors by digest.
	Special Type = "Special"
)

// Action is what a change needs to take effect.
type Action struct {
	Type    Type   `json:"type"`
	Service string `json:"service,omitempty"` // for Reload and Restart: a unit's name, such as crio.service
}

// String returns the action for display.
func (a Action) String() string {
	switch a.Type {
	case None:
		return "nothing"
	case DaemonReload:
		return "daemon-reload"
	}
	return strings.TrimSpace(strings.ToLower(string(a.Type)) + " " + a.Service)
}

// Rule says what changes of a path and everything below it, or of a unit, need.
type Rule struct {
	Path    string // absolute, clean; "" if the rule is for a unit, or for the keys
	Unit    string
	Keys    bool     // the rule is for SSH keys and password of core
	Actions []Action // empty if nothing is needed
	Ours    bool     // the rule is one of the defaults
	Drain   Draining // what the policy says about a drain, which is no action of a host
}

// Draining says whether a change without a reboot needs a drain of the node, in a cluster.
type Draining string

// The values.
const (
	DrainNever     Draining = ""
	DrainAlways    Draining = "always"
	DrainByContent Draining = "by content" // as RegistriesDrain decides
)

// String returns the name of the rule for display.
func (r Rule) String() string {
	text := "rule for " + cmp.Or(r.Path, "unit "+r.Unit)
	if r.Keys {
		text = "rule for SSH keys and password of " + core
	}
	if r.Ours {
		return "default " + text
	}
	return text
}

// unitDir has the units of MachineConfigs, their drop-ins and the links that enable them.
const unitDir = enable.Dir

// weight returns how closely the rule matches an entry: the length of the rule's path; 0 if it
// does not match. A rule for a unit has the path of the unit's file, and also matches drop-ins
// and the links that enable the unit.
func (r Rule) weight(name string) int {
	switch {
	case r.Keys:
		if !slices.Contains(logins(), name) {
			return 0
		}
		return len(name)
	case r.Unit != "":
		if UnitOf(name) != r.Unit {
			return 0
		}
		return len(path.Join(unitDir, r.Unit))
	case name == r.Path, strings.HasPrefix(name, strings.TrimSuffix(r.Path, "/")+"/"):
		return len(r.Path)
	}
	return 0
}

// core is the only user for whom a MachineConfig can set SSH keys and password.
const core = "core"

// logins returns the paths of the entries with core's SSH keys and password. The operator's
// policy has no rule for a password, so the rule for the keys applies.
func logins() []string { return append(hostfiles.SSHKeys(core), hostfiles.PasswordPath(core)) }

// UnitOf returns the unit that an entry belongs to, as its file, a drop-in, or a link that
// enables it; "" if there is none.
func UnitOf(name string) string {
	rest, ok := strings.CutPrefix(name, unitDir+"/")
	if !ok {
		return ""
	}
	first, below, inDir := strings.Cut(rest, "/")
	if !inDir {
		return first
	}
	if slices.ContainsFunc(enable.Suffixes(), func(suffix string) bool { return strings.HasSuffix(first, suffix) }) {
		return below
	}
	return strings.TrimSuffix(first, ".d")
}

// IsUnit reports whether a change of a path needs a daemon-reload.
func IsUnit(name string) bool { return strings.HasPrefix(name, unitDir+"/") }

// Rules are the rules of a machine.
type Rules struct{ list []Rule }

// For returns the rule for an entry: the one with the longest matching path, and of equally long
// ones the machine's own. If it returns false, there is no rule, and a change of the entry needs
// a reboot.
func (r Rules) For(name string) (Rule, bool) {
	var found Rule
	most := 0
	for _, rule := range r.list { // the machine's own rules come first
		if weight := rule.weight(name); weight > most {
			found, most = rule, weight
		}
	}
	return found, most > 0
}

// Services with an order that matters: CRI-O reads the certificates that CATrust collects, and kubelet depends on
// CRI-O.
const (
	CATrust = "coreos-update-ca-trust.service"
	crio    = "crio.service"
	kubelet = "kubelet.service"
)

// Order returns the actions without duplicates, in the order in which they are to be run:
// daemon-reload, CATrust, reloads, restarts, kubelet. CRI-O is the last of the reloads and of
// the restarts. A service that is restarted is not reloaded too. If there is a Reboot, it is the
// only action.
func Order(actions []Action) []Action {
	ordered := []Action{}
	for _, a := range actions {
		switch {
		case a.Type == Reboot:
			return []Action{{Type: Reboot}}
		case a.Type == None, slices.Contains(ordered, a):
		case a.Type == Reload && slices.Contains(actions, Action{Restart, a.Service}):
		default:
			ordered = append(ordered, a)
		}
	}
	sort.Slice(ordered, func(i, j int) bool {
		a, b := ordered[i], ordered[j]
		return cmp.Or(cmp.Compare(turn(a), turn(b)), cmp.Compare(last(a), last(b)), cmp.Compare(a.Service, b.Service)) < 0
	})
	return ordered
}

// turn returns the rank of an action in the order.
func turn(a Action) int {
	switch {
	case a.Type == DaemonReload:
		return 0
	case a.Service == CATrust:
		return 1
	case a.Service == kubelet:
		return 4
	case a.Type == Reload:
		return 2
	}
	return 3
}

// last returns 1 for the service that comes last among those with the same turn.
func last(a Action) int {
	if a.Service == crio {
		return 1
	}
	return 0
}
