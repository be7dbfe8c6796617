package rehearse

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
)

const modprobe = "/usr/sbin/modprobe"

// needed is a device or a file system for which the new kernel is asked.
type needed struct {
	name   verdict.Name
	text   string   // what it is
	short  string   // by which it is named in parentheses
	vital  bool     // without it the system does not start
	early  bool     // / is on it: so the initramfs must have it
	today  []string // modules that serve it in the running system
	asked  []string // names for modprobe
	answer []string // modules that serve it in the new one, each once
}

// neededOf returns what a machine needs drivers for. Of what no module serves today nothing is known.
func neededOf(facts Facts) (all []needed) {
	for _, d := range facts.Devices {
		all = append(all, needed{name: verdict.Drivers, text: d.Below + " stands on a device", short: printable.Line(d.Alias), vital: d.Below == "/", early: d.Below == "/",
			today: d.Modules, asked: append([]string{d.Alias}, d.Modules...)})
	}
	for _, f := range facts.FileSystems {
		all = append(all, needed{name: verdict.FileSystems, text: printable.Line(f.At) + " is a file system", short: printable.Line(f.Type), vital: f.vital(), early: f.At == "/",
			today: f.Modules, asked: append([]string{"fs-" + f.Type}, f.Modules...)})
	}
	return slices.DeleteFunc(all, func(n needed) bool { return len(n.today) == 0 })
}

// drivers judges devices and file systems for which the new kernel has no driver: without one that is vital, the system
// does not start. The kernel is asked for the alias first, and then for the modules that serve it today. The tables of
// drivers that are built in are not indexed before Linux 6.18, but their names are.
func (s Stage) drivers(c Change, next image, facts Facts) subject {
	all := neededOf(facts)
	for i, n := range all {
		all[i].vital = n.vital && (n.short != "dm-multipath" || !next.onePath(c.Line, facts))
	}
	var programs [][]string
	for _, n := range all {
		for _, name := range n.asked {
			programs = append(programs, []string{modprobe, "-S", next.release, "-R", name})
		}
	}
	return subject{programs: programs, judge: func(_ context.Context, ended []ending) (found []verdict.Finding, err error) {
		for i, n := range all {
			answers := ended[:len(n.asked)]
			ended = ended[len(answers):]
			if !slices.ContainsFunc(answers, func(e ending) bool { return !e.noModule() }) {
				found = append(found, n.lost(next.release))
			}
			for _, e := range answers {
				if e.Status == 0 {
					all[i].answer = append(all[i].answer, e.names()...)
				}
			}
			all[i].answer = once(all[i].answer) // the alias and the driver's name may have the same answer
		}
		more, err := s.earlyOnes(c, next, all, facts)
		return append(found, more...), err
	}}
}

// once returns names, each once: modprobe names a module as often as a device matches its aliases.
func once(modules []string) []string {
	modules = slices.Clone(modules)
	slices.Sort(modules)
	return slices.Compact(modules)
}

// lost returns the finding about something for which the new kernel has no driver.
func (n needed) lost(release string) verdict.Finding {
	f := verdict.Finding{Name: n.name, Weight: verdict.Warned, Text: fmt.Sprintf("%s for which the new kernel, %s, has no driver (%s, today of %s)", n.text, release, n.short, strings.Join(n.today, ", "))}
	return f.RefuseIf(n.vital, "use an image with this driver in its kernel, or put the data on another disk or file system")
}

// names returns the modules that modprobe names, one a line. Its other lines complain that files of modules are not there:
// the tree does not show them.
func (e ending) names() (all []string) {
	for line := range strings.Lines(e.Said) {
		if words := strings.Fields(line); len(words) == 1 {
			all = append(all, words...)
		}
	}
	return all
}

// noModule reports whether modprobe says that there is none of the name. Another failure says nothing.
func (e ending) noModule() bool {
	return e.Status == 1 && strings.Contains(e.Said, " not found in directory ")
}
