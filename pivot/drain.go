package pivot

import (
	"path"
	"slices"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
)

// Drain says whether a cluster drains the node before a plan is carried out, as the node disruption
// policy decides it. pivot itself drains nothing, and does not know whether the node is the only one
// of its cluster, which is never drained.
type Drain struct {
	Wanted  bool     `json:"wanted"`
	Because []string `json:"because"` // why a drain is wanted, for people; empty if it is not
}

// DrainForReboot returns the Drain of a change that needs a reboot.
func DrainForReboot(because ...string) Drain {
	if len(because) == 0 { // the plan was not Judged
		because = []string{"it needs a reboot"}
	}
	return Drain{Wanted: true, Because: because}
}

// Contents returns the content of a file before and after a plan; nil if there is none.
type Contents func(path string) (before, after []byte, err error)

// WithDrain returns a plan, which was Judged by the same rules, with its Drain. A reboot always has one, and a change
// if its rule says so; for registries.conf that depends on the contents.
func (p Plan) WithDrain(rules disruption.Rules, contents Contents) Plan {
	if p.Reboots > 0 {
		p.Drain = new(DrainForReboot(p.RebootReasons()...))
		return p
	}
	p.Drain = &Drain{Because: []string{}}
	for _, name := range p.changedPaths() {
		why := ""
		switch rule, _ := rules.For(name); rule.Drain {
		case disruption.DrainAlways:
			why = rule.String()
		case disruption.DrainByContent:
			before, after, err := contents(name)
			if why = disruption.RegistriesDrain(before, after); err != nil {
				why = "it cannot be compared: " + err.Error()
			}
		}
		if why != "" {
			p.Drain.Wanted, p.Drain.Because = true, append(p.Drain.Because, name+": "+why)
		}
	}
	return p
}

// changedPaths returns the paths of the entries and units that change.
func (p Plan) changedPaths() (paths []string) {
	for _, e := range p.Entries {
		paths = append(paths, e.Path)
	}
	for _, u := range p.Units {
		paths = append(paths, path.Join(enable.Dir, u.Name))
	}
	return paths
}

// ContentOf returns the content of the file at a path among files; nil if there is none.
func ContentOf(files []hostfiles.File, path string) []byte {
	i := slices.IndexFunc(files, func(f hostfiles.File) bool { return f.Path == path && f.Kind == hostfiles.KindFile })
	if i < 0 {
		return nil
	}
	return files[i].Content
}
