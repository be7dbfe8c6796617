package machineconfig

import (
	"slices"
	"sort"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// What stays as the MachineConfig that a machine runs with has it is never an error; only a change
// of it can be. That MachineConfig may have what pivot refuses: another program has applied it, or
// Ignition has. Such values are set aside: pivot does not apply, compare or remove them. As long as the next
// MachineConfig has the same, pivot does not report them.

// ParseForeign is ParseRecord for a MachineConfig that another program has applied, which may be
// damaged: then nothing of it is used. All problems of the report are warnings.
func ParseForeign(data []byte, host Host) (*MachineConfig, problem.Report) {
	desired, report := ParseRecord(data, host)
	if desired == nil {
		desired = &MachineConfig{}
	}
	return desired, report.As(problem.Warning)
}

// Limits of setting values aside one by one. Beyond them, the whole member of spec that has one is
// set aside.
const (
	maxRounds = 8     // conversions, each of which can find more of them
	maxAside  = 1_000 // values
)

// setAside converts the MachineConfig that a machine runs with. It sets aside the values with errors,
// which become warnings. If that is not possible, they stay errors.
func setAside(root document.Node, host Host) *MachineConfig {
	without := map[string]bool{}
	var wrong problem.Report
	for round := 0; ; round++ {
		var report problem.Report
		own := root
		own.Report = &report
		d, before := host.whole(own, without), len(without)
		for _, p := range report.Errors() {
			if path := unusable(own, p.Path, without, round >= maxRounds || len(report) > maxAside); path != "" {
				without[path] = true
			}
		}
		switch {
		case !report.Failed():
			d.unused = partsAt(own, without)
			root.Report.Add(wrong.As(problem.Warning)...)
			return d
		case len(without) == before:
			root.Report.Add(append(wrong, report.Errors()...)...)
			return nil
		}
		wrong.Add(report.Errors()...)
	}
}

// unusable returns the path of the smallest value around an error at a path that can be set aside alone, and is not
// yet; "" if there is none. With entire that is a member of spec.
func unusable(root document.Node, path string, without map[string]bool, entire bool) string {
	steps := document.Steps(path)
	if len(steps) < 2 || steps[0] != "spec" {
		return ""
	}
	steps = steps[:atom(root, steps)]
	if entire {
		steps = steps[:2]
	}
	for ; len(steps) > 1; steps = steps[:len(steps)-1] {
		if at, found := root.Find(steps...); found && !without[at.Path] {
			return at.Path
		}
	}
	return ""
}

// atom returns how many steps of a path lead to a value that is used or set aside as a whole. In lists that is an
// element, but a unit has drop-ins, and core settings, of their own. Outside of lists it is a member of spec or in the
// two levels of its config.
func atom(root document.Node, steps []any) int {
	list := slices.IndexFunc(steps, func(step any) bool { _, element := step.(int); return element })
	if list < 0 {
		switch {
		case steps[1] != "config":
			return 2
		case len(steps) > 3 && steps[2] == "ignition" && steps[3] == "version":
			return 2 // nothing of the config can be read without it
		}
		return min(len(steps), 4)
	}
	at := list + 1
	if len(steps) <= at {
		return at
	}
	inner := at + 1
	if len(steps) > inner {
		if _, element := steps[inner].(int); element {
			inner++
		}
	}
	switch path := document.PathOf(steps[:list]...); {
	case path == ".spec.config.systemd.units" && steps[at] == "dropins":
		return inner
	case path == ".spec.config.passwd.users" && steps[at] != "name":
		if name, _ := root.Find(append(slices.Clone(steps[:at]), "name")...); name.Is(core) {
			return inner
		}
	}
	return at
}

// partsAt returns the values at some paths of a document.
func partsAt(root document.Node, paths map[string]bool) (all []part) {
	for path := range paths {
		n, _ := root.Find(document.Steps(path)...)
		all = append(all, part{place: placeAt(root, path), value: canonical(n.JSON()), at: path})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].at < all[j].at })
	return all
}

// placeAt returns the place of a path of a document.
func placeAt(root document.Node, path string) (p place) {
	at := root
	for _, step := range document.Steps(path) {
		at, _ = at.Find(step)
		if name, member := step.(string); member {
			p = p.member(name)
			continue
		}
		key, value := "", canonical(at.JSON())
		for _, name := range []string{"path", "name", "device"} {
			if id := at.Get(name); id.IsText() {
				key, value = name, id.Text()
				break
			}
		}
		p = p.item(key, value)
	}
	return p[1:] // below spec
}

// staying returns the paths of the values that pivot cannot use and that a MachineConfig has like
// the machine's. It warns about those that the MachineConfig does not have any more.
func staying(root document.Node, has *MachineConfig) map[string]bool {
	paths := map[string]bool{}
	asked := root.Get("spec")
	var discarded problem.Report
	asked.Report = &discarded // wrong types are reported later
	lookup := lists{}
	for _, p := range has.unused {
		found := lookup.all(p.place, asked)
		same := slices.IndexFunc(found, func(n document.Node) bool { return !paths[n.Path] && canonical(n.JSON()) == p.value })
		switch {
		case same >= 0:
			paths[found[same].Path] = true
		case !slices.ContainsFunc(found, func(n document.Node) bool { return !n.IsNull() }), slices.Equal(p.place, members("config")):
			root.Report.Warn(p.place.nearest(asked), "%s stays as the machine has it: no MachineConfig asks for it any more, and pivot does not manage it", p.name())
		}
	}
	return paths
}
