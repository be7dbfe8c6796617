// Package disruption has the rules that say what a change of an entry means for what runs:
// nothing, services that are reloaded or restarted, or a reboot.
//
// The rules are those of OpenShift's node disruption policy: its defaults, its format, and
// its choice of the rule with the longest path. Source: NodeDisruptionPolicy.md and
// pkg/apihelpers of the machine-config operator, and the type MachineConfiguration of
// openshift/api. The package does no I/O.
package disruption

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/varentries"
)

// Type is the kind of an Action; the names are the policy's.
type Type string

// The types. One Reboot makes all other actions needless.
const (
	None         Type = "None"
	DaemonReload Type = "DaemonReload" // systemd reads its units again
	Reload       Type = "Reload"       // of a service
	Restart      Type = "Restart"      // of a service
	Reboot       Type = "Reboot"
)

// Action is what a change needs so that what runs learns of it.
type Action struct {
	Type    Type   `json:"type"`
	Service string `json:"service,omitempty"` // of Reload and Restart: a unit's name, as crio.service
}

// String is the action in words.
func (a Action) String() string {
	switch a.Type {
	case None:
		return "nothing"
	case DaemonReload:
		return "daemon-reload"
	}
	return strings.TrimSpace(strings.ToLower(string(a.Type)) + " " + a.Service)
}

// Rule says what changes at a path, or below it, or of a unit, need.
type Rule struct {
	Path    string // absolute, clean; "" if the rule is for a unit, or for the keys
	Unit    string
	Keys    bool     // it is for SSH keys and password of core
	Actions []Action // none: nothing is needed
	Ours    bool     // it is one of the defaults
}

// String names the rule.
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

// unitDir is where units of MachineConfigs, their drop-ins and the links that enable them are.
const unitDir = "/etc/systemd/system"

// weight is how closely the rule fits an entry: the length of the path that it shares with
// it; 0 if it does not fit. A rule for a unit is one for the unit's own file, which its
// drop-ins and the links that enable it are taken for.
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

// core is the one user whose SSH keys and password a MachineConfig has.
const core = "core"

// logins are the paths of the entries by which core logs in. A password has no rule of its own
// in the operator's policy, and goes with the keys.
func logins() []string { return append(varentries.SSHKeys(core), hostfiles.PasswordPath(core)) }

// UnitOf is the unit that an entry is of: one of its files, a drop-in, or a link that
// enables it; "" if it is of none.
func UnitOf(name string) string {
	rest, ok := strings.CutPrefix(name, unitDir+"/")
	if !ok {
		return ""
	}
	first, below, inDir := strings.Cut(rest, "/")
	if !inDir {
		return first
	}
	if strings.HasSuffix(first, ".wants") || strings.HasSuffix(first, ".requires") {
		return below
	}
	return strings.TrimSuffix(first, ".d")
}

// IsUnit reports whether systemd learns of a change at a path only when it reads its
// units again.
func IsUnit(name string) bool { return strings.HasPrefix(name, unitDir+"/") }

// Rules are the rules of a machine.
type Rules struct{ list []Rule }

// For is the rule for an entry: the one with the longest path, of equally long ones the
// machine's own; false if there is none. Then a change of the entry needs a reboot.
func (r Rules) For(name string) (Rule, bool) {
	var found Rule
	most := 0
	for _, rule := range r.list { // the machine's own come first
		if weight := rule.weight(name); weight > most {
			found, most = rule, weight
		}
	}
	return found, most > 0
}

// The services whose order matters: CRI-O reads the certificates that the first one
// collects, and kubelet works with CRI-O.
const (
	CATrust = "coreos-update-ca-trust.service"
	crio    = "crio.service"
	kubelet = "kubelet.service"
)

// Order is what all the actions come to, each once and in the order in which they are
// carried out: daemon-reload, reloads, restarts; but the update of the trusted
// certificates first of all services, CRI-O behind other services of its kind, and
// kubelet last. A service that is restarted is not reloaded too. A Reboot leaves nothing
// beside it.
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
	slices.SortFunc(ordered, func(a, b Action) int {
		return cmp.Or(cmp.Compare(turn(a), turn(b)), cmp.Compare(last(a), last(b)), cmp.Compare(a.Service, b.Service))
	})
	return ordered
}

// turn is when an action has its turn.
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

// last is 1 for the service that comes last of those with its turn.
func last(a Action) int {
	if a.Service == crio {
		return 1
	}
	return 0
}
