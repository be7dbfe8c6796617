package disruption

import (
	"path"
	"slices"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/problem"
	"machine-pivot/internal/varentries"
)

// maxActions is the maximal number of actions in a rule, as in the operator's type.
const maxActions = 10

// Read reads the rules of a machine and puts them before the defaults. data is YAML or JSON: the
// operator's object MachineConfiguration, or only its spec.nodeDisruptionPolicy. An empty file has
// no rules. The report lists all problems; if it has failed, the rules must not be used.
func Read(file string, data []byte) (Rules, problem.Report) {
	r := reader{seen: map[string]string{}}
	documents := 0
	report := document.Read(file, data, func(root document.Node) {
		if documents++; documents > 1 {
			root.Fail("it holds more than one document")
			return
		}
		r.policy(root)
	})
	return Rules{append(r.rules, builtIn()...)}, report
}

// reader collects rules.
type reader struct {
	rules []Rule
	seen  map[string]string // the JSON path of the rule for each path or unit
}

func (r *reader) policy(root document.Node) {
	if !root.Get("kind").IsNull() {
		root.Known("a MachineConfiguration", "apiVersion", "kind", "metadata", "spec", "status")
		root.Get("apiVersion").MustBe("operator.openshift.io/v1")
		root.Get("kind").MustBe("MachineConfiguration")
		root = root.Get("spec").Get("nodeDisruptionPolicy") // the rest of spec is not for hosts
	}
	root.Known("a node disruption policy", "files", "units", "sshkey")
	for _, n := range root.Get("files").Items() {
		n.Known("a rule for files", "path", "actions")
		at := n.Get("path")
		name := at.Text()
		if !path.IsAbs(name) || path.Clean(name) != name || name == "/" {
			at.Fail("%s is not a path as it would be written: it is absolute, and clean", problem.Quoted(name))
			continue
		}
		name = varentries.Resolved(name)
		r.add(n, at, name, Rule{Path: name, Actions: actions(n.Get("actions"))})
	}
	for _, n := range root.Get("units").Items() {
		n.Known("a rule for a unit", "name", "actions")
		at := n.Get("name")
		name := at.Text()
		if !enable.IsName(name) {
			at.Fail("%s is not the name of a unit", problem.Quoted(name))
			continue
		}
		r.add(n, at, name, Rule{Unit: name, Actions: actions(n.Get("actions"))})
	}
	if keys := root.Get("sshkey"); !keys.IsNull() {
		keys.Known("the rule for SSH keys", "actions")
		r.rules = append(r.rules, Rule{Keys: true, Actions: actions(keys.Get("actions"))})
	}
}

// add adds a rule, unless there already is one for the same path or unit.
func (r *reader) add(n, at document.Node, name string, rule Rule) {
	if other, twice := r.seen[name]; twice {
		at.Fail("there is a rule for %s already, at %s", name, other)
		return
	}
	r.seen[name] = n.Path
	r.rules = append(r.rules, rule)
}

// actions reads the actions of a rule. It ignores Drain, which has no meaning without a cluster.
func actions(n document.Node) []Action {
	items := n.Items()
	if len(items) == 0 {
		n.Fail("it has no actions; one that needs nothing has type None")
	}
	if len(items) > maxActions {
		n.Fail("it has %d actions, more than %d", len(items), maxActions)
	}
	var all []Action
	var types []string
	for _, item := range items {
		item.Known("an action", "type", "reload", "restart")
		at := item.Get("type")
		types = append(types, at.Text())
		a := Action{Type: Type(at.Text())}
		switch a.Type {
		case Reload:
			a.Service = service(item, "reload")
		case Restart:
			a.Service = service(item, "restart")
		case None, DaemonReload, Reboot:
		case "Drain":
			at.Warn("Drain means nothing here: pivot drains no node")
			continue
		default:
			at.Fail("%s is no action; there are None, Reload, Restart, DaemonReload, Drain and Reboot", problem.Quoted(at.Text()))
			continue
		}
		all = append(all, a)
	}
	for _, alone := range []Type{None, Reboot} {
		if len(types) > 1 && slices.Contains(types, string(alone)) {
			n.Fail("%s stands alone, without another action", alone)
		}
	}
	return all
}

// service reads the unit that an action is for.
func service(action document.Node, member string) string {
	of := action.Get(member)
	of.Known("it", "serviceName")
	at := of.Get("serviceName")
	name := at.Text()
	if !enable.IsName(name) {
		at.Fail("%s is not the name of a unit", problem.Quoted(name))
	}
	return name
}
