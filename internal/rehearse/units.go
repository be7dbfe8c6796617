package rehearse

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
)

const analyze = "/usr/bin/systemd-analyze"

const unitsDir = "/etc/systemd/system"

// missingProgram matches what systemd-analyze says of a program that does not exist.
var missingProgram = regexp.MustCompile(`^(\S+): Command (\S+) is not executable: No such file or directory$`)

// units asks the new systemd about enabled services of the machine: programs in /usr that the new system does not have. What
// is elsewhere, as in /usr/local, is not there when the services are read.
func units(o Own) subject {
	sub := subject{files: o.below(unitsDir), judge: nothing}
	asked := o.services()
	if len(asked) == 0 {
		return sub
	}
	sub.programs = [][]string{append([]string{analyze, "verify", "--man=no", "--recursive-errors=no"}, asked...)}
	sub.judge = func(_ context.Context, ended []ending) (found []verdict.Finding, err error) {
		for line := range strings.Lines(ended[0].Said) {
			words := missingProgram.FindStringSubmatch(strings.TrimSpace(line))
			if words == nil || strings.HasPrefix(words[2], "/usr/local/") || !slices.Contains([]string{"usr", "bin", "sbin"}, strings.Split(words[2]+"/", "/")[1]) {
				continue
			}
			found = append(found, verdict.Finding{Name: "units", Weight: verdict.Warned, Text: fmt.Sprintf("%s runs %s, which the new system does not have", printable.Line(words[1]), printable.Line(words[2]))})
		}
		return found, nil
	}
	return sub
}

// services returns the names of the enabled services of which the machine has a file.
func (o Own) services() (names []string) {
	for _, name := range o.Enabled {
		template := name
		if prefix, _, ok := strings.Cut(name, "@"); ok {
			template = prefix + "@.service"
		}
		own := false
		for file := range o.Files {
			file, of := strings.CutPrefix(file, unitsDir+"/")
			own = own || of && slices.Contains([]string{name, template, name + ".d", template + ".d"}, strings.Split(file, "/")[0])
		}
		if own && strings.HasSuffix(name, ".service") && !strings.HasPrefix(name, "-") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
