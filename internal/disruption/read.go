package disruption

import (
	"path"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/problem"
)

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

// reader collects the rules of a machine.
type reader struct {
	rules []Rule
	seen  map[string]string // the JSON path of the rule for each path
}

func (r *reader) policy(root document.Node) {
	of := ownFile()
	if !root.Get("kind").IsNull() {
		of = specification()
		root = mustBeObject(root).Get("nodeDisruptionPolicy") // the rest of spec is not for hosts
	}
	for _, e := range of.read(root) {
		if e.Path != "" && !r.resolve(&e) {
			continue
		}
		e.Drain, e.Actions = drainOf(e.Actions), r.actions(e)
		r.rules = append(r.rules, e.Rule)
	}
}

// resolve replaces the path of an entry by its path on ostree hosts. It returns false if the
// entry cannot be used.
func (r *reader) resolve(e *entry) bool {
	if !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path || e.Path == "/" {
		e.name.Fail("%s is not a path as it would be written: it is absolute, and clean", problem.Quoted(e.Path))
		return false
	}
	e.Path = hostfiles.Resolved(e.Path)
	if other, twice := r.seen[e.Path]; twice {
		e.name.Fail("there is a rule for %s already, at %s", e.Path, other)
		return false
	}
	r.seen[e.Path] = e.at
	return true
}

// actions returns the actions of an entry on a host, without Drain; see drainOf. A reload is judged like a restart, which it becomes while the system starts.
func (r *reader) actions(e entry) (all []Action) {
	for i, a := range e.Actions {
		at := e.actions[i]
		switch {
		case a.Type == Drain:
			at.Get("type").Warn("pivot drains no node: it only says in its plan and its result that a drain is wanted")
			continue
		case isServiceName(a.Service) && !enable.IsName(a.Service): // the API accepts more than systemd
			at.Fail("%s is not the name of a unit", problem.Quoted(a.Service))
		case Ends(a.Service):
			at.Fail("%s %s ends the system or restarts all of its services, so it is not done without a reboot: use the type Reboot", a.Type, a.Service)
		case isOwn(a.Service):
			at.Fail("%s is a unit of pivot: it would wait for the change that restarts it", a.Service)
		}
		all = append(all, a)
	}
	return all
}
