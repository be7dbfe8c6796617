package disruption

import (
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// Cluster is what a cluster's object MachineConfiguration decides about changes.
type Cluster struct {
	rules     []Rule
	overrides []string // of irreconcilableValidationOverrides.storage
	// Observed says that the rules are those of the object's status, which the operator of that
	// cluster has written, and not the defaults of the tables here.
	Observed bool
}

// DefaultCluster returns what a cluster decides if its object says nothing.
func DefaultCluster() Cluster { return Cluster{rules: OperatorRules()} }

// ReadCluster reads a cluster's MachineConfiguration, as oc get machineconfiguration cluster -o yaml writes it. If its
// status is of the same generation as its spec, it has the policy as the operator applies it. Otherwise spec overrides
// the defaults entry by entry, as the operator does it. The report has all that the API refuses.
func ReadCluster(file string, data []byte) (Cluster, problem.Report) {
	c := DefaultCluster()
	report := document.Read(file, data, func(root document.Node) {
		if !root.Object() {
			return
		}
		spec := mustBeObject(root)
		c.overrides = overridesOf(spec.Get("irreconcilableValidationOverrides"))
		own := rulesOf(specification().read(spec.Get("nodeDisruptionPolicy")))
		status := root.Get("status")
		policies := status.Get("nodeDisruptionPolicyStatus").Get("clusterPolicies")
		switch {
		case policies.IsEmpty():
		case string(root.Get("metadata").Get("generation").JSON()) == string(status.Get("observedGeneration").JSON()):
			c.rules, c.Observed = rulesOf(observed().read(policies)), true
			return
		default:
			status.Warn("it is not of this generation of spec: what it has is not used")
		}
		c.rules = append(own, c.rules...)
	})
	return c, report
}

// overridesOf reads the sections with differences that the operator does not refuse.
func overridesOf(n document.Node) (all []string) {
	n.Known("it", "storage")
	for _, item := range n.Get("storage").Items() {
		section := item.Text()
		switch {
		case !slices.Contains(overrides(), section):
			item.Fail("there is no section %s; there are %s", problem.Quoted(section), strings.Join(overrides(), ", "))
		case slices.Contains(all, section):
			item.Fail("it is there twice")
		default:
			all = append(all, section)
		}
	}
	return all
}

// rulesOf returns the rules of entries. It warns of units that end a machine if they restart, which the operator does
// not notice.
func rulesOf(entries []entry) (all []Rule) {
	for _, e := range entries {
		for i, a := range e.Actions {
			if a.Type == Restart && Ends(a.Service) {
				e.actions[i].Warn("a restart of %s ends the system or restarts all of its services, without the operator's drain: use the type Reboot", a.Service)
			}
		}
		all = append(all, e.Rule)
	}
	return all
}

// Section returns what the operator does about a section of spec.config that differs.
func (c Cluster) Section(s Section) Treatment {
	if slices.Contains(c.overrides, s.Override) {
		return NotCompared
	}
	return s.Treatment
}

// ForFile returns the rule for a file: the one with the longest path that is the file's, or
// that of a directory above it. If it returns false, a change of the file needs a reboot.
func (c Cluster) ForFile(name string) (found Rule, ok bool) {
	for _, r := range c.rules { // the cluster's own come first
		if r.Path == "" || r.Path != name && !strings.HasPrefix(name, path.Clean(r.Path)+"/") {
			continue
		}
		if len(r.Path) > len(found.Path) {
			found, ok = r, true
		}
	}
	return found, ok
}

// ForUnit returns the rule for a unit. If it returns false, a change of the unit needs a reboot.
func (c Cluster) ForUnit(name string) (Rule, bool) {
	return c.first(func(r Rule) bool { return r.Unit == name && name != "" })
}

// ForKeys returns the rule for all changes of users.
func (c Cluster) ForKeys() Rule {
	rule, _ := c.first(func(r Rule) bool { return r.Keys })
	return rule
}

func (c Cluster) first(is func(Rule) bool) (Rule, bool) {
	if i := slices.IndexFunc(c.rules, is); i >= 0 {
		return c.rules[i], true
	}
	return Rule{}, false
}
