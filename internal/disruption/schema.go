package disruption

import (
	"regexp"
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/problem"
)

// schema is what a node disruption policy may contain, as the API's validation has it.
type schema struct {
	entries int               // maximal number of files, and of units
	types   []Type            // of actions
	isUnit  func(string) bool // whether a name of a unit is accepted
}

// maxActions is the maximal number of actions in an entry.
const maxActions = 10

func allTypes() []Type { return []Type{None, Reload, Restart, DaemonReload, Drain, Reboot} }

// specification is the schema of spec.nodeDisruptionPolicy.
func specification() schema { return schema{50, allTypes(), isServiceName} }

// observed is the schema of status.nodeDisruptionPolicyStatus.clusterPolicies, which the operator
// writes: its defaults and those of spec.
func observed() schema { return schema{100, append(allTypes(), Special), isServiceName} }

// ownFile is the schema of a host's own file. It also accepts instances of units, which the
// API has no character for.
func ownFile() schema { return schema{50, allTypes(), enable.IsName} }

// The API's two patterns for the name of a unit, which must both match.
var (
	serviceType = regexp.MustCompile(`\.(service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)$`)
	serviceName = regexp.MustCompile(`^[a-zA-Z0-9:._\\-]+\..`)
)

func isServiceName(name string) bool {
	return len(name) <= 255 && serviceType.MatchString(name) && serviceName.MatchString(name)
}

// entry is a rule with the places of its parts.
type entry struct {
	Rule
	at      string          // the JSON path of the entry
	name    document.Node   // of its path, or its unit
	actions []document.Node // of Actions
}

// read reads a policy. It reports everything that the API refuses.
func (s schema) read(root document.Node) (all []entry) {
	root.Known("a node disruption policy", "files", "units", "sshkey")
	all = append(all, s.list(root.Get("files"), "path", "a rule for files")...)
	all = append(all, s.list(root.Get("units"), "name", "a rule for a unit")...)
	if keys := root.Get("sshkey"); !keys.IsNull() {
		keys.Known("the rule for SSH keys", "actions")
		e := entry{Rule: Rule{Keys: true}, at: keys.Path, name: keys}
		if e.Actions, e.actions = s.actions(keys); len(e.Actions) > 0 {
			all = append(all, e)
		}
	}
	return all
}

// list reads the entries for files or for units, with their names in the member key.
func (s schema) list(n document.Node, key, what string) (all []entry) {
	items := n.Items()
	if len(items) > s.entries {
		n.Fail("it has %d entries, more than %d", len(items), s.entries)
		return nil
	}
	seen := map[string]string{}
	for _, item := range items {
		item.Known(what, key, "actions")
		e := entry{at: item.Path, name: item.Get(key)}
		name := e.name.Text()
		e.Actions, e.actions = s.actions(item)
		other, twice := seen[name]
		seen[name] = item.Path
		switch {
		case key == "path" && name == "":
			e.name.Fail("it is missing: say which path")
		case key != "path" && !s.isUnit(name):
			e.name.Fail("%s is not the name of a unit", problem.Quoted(name))
		case twice:
			e.name.Fail("there is a rule for %s already, at %s", name, other)
		case key == "path":
			e.Path = name
			all = append(all, e)
		default:
			e.Unit = name
			all = append(all, e)
		}
	}
	return all
}

// actions reads the actions of an entry, and where they are.
func (s schema) actions(of document.Node) (all []Action, at []document.Node) {
	n := of.Get("actions")
	items := n.Items()
	switch {
	case n.IsNull():
		n.Fail("it is missing: say what is needed, None if it is nothing")
	case len(items) == 0:
		n.Warn("it has no actions; say None if nothing is needed")
	case len(items) > maxActions:
		n.Fail("it has %d actions, more than %d", len(items), maxActions)
	}
	for _, item := range items {
		if a, ok := s.action(item); ok {
			all, at = append(all, a), append(at, item)
		}
	}
	for _, alone := range []Type{None, Reboot} {
		if len(items) > 1 && slices.ContainsFunc(all, func(a Action) bool { return a.Type == alone }) {
			n.Fail("%s stands alone, without another action", alone)
		}
	}
	return all, at
}

// action reads one action. It returns false if there is none of its type.
func (s schema) action(n document.Node) (Action, bool) {
	n.Known("an action", "type", "reload", "restart")
	at := n.Get("type")
	a := Action{Type: Type(at.Text())}
	if !slices.Contains(s.types, a.Type) {
		at.Fail("%s is no action; there are %s", problem.Quoted(at.Text()), list(s.types))
		return a, false
	}
	for _, member := range []Type{Reload, Restart} {
		key := strings.ToLower(string(member))
		target := n.Get(key)
		switch {
		case a.Type == member:
			target.Known("it", "serviceName")
			at := target.Get("serviceName")
			if a.Service = at.Text(); !s.isUnit(a.Service) {
				at.Fail("%s is not the name of a unit", problem.Quoted(a.Service))
			}
		case !target.IsNull():
			target.Fail("it belongs to the type %s, and the type is %s", member, a.Type)
		}
	}
	return a, true
}

// list returns names in a sentence.
func list(types []Type) string {
	var names []string
	for _, t := range types {
		names = append(names, string(t))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// mustBeObject checks that a document is the operator's object, and returns its spec.
func mustBeObject(root document.Node) (spec document.Node) {
	root.Known("a MachineConfiguration", "apiVersion", "kind", "metadata", "spec", "status")
	root.Get("apiVersion").MustBe("operator.openshift.io/v1")
	root.Get("kind").MustBe("MachineConfiguration")
	return root.Get("spec")
}
