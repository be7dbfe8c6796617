package bootlab

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"machine-pivot/pivot"
)

// Story selects the console lines of one boot that show what the machine does: the kernel's first
// line, pivot's lines, and the start of kubelet.
type Story struct {
	Tell func(line string) // called with each selected line; may be nil

	Steps   []pivot.Step // pivot's steps in the order of their first line
	Kubelet bool         // whether kubelet has started
}

// stepLine matches a line about a step that pivot itself writes to the console (package status). A
// kernel message may precede it in the same line.
var stepLine = regexp.MustCompile(`\bpivot: ([a-z]+): `)

// steps returns pivot's steps in the boot that pivots, and in the boot after its reboot.
func steps() (pivoting, proving []pivot.Step) {
	for _, s := range pivot.Steps() {
		if s.Shown != "" || s.Detour {
			continue
		}
		if s.Step != pivot.StepProve {
			pivoting = append(pivoting, s.Step)
		}
		if s.Step == pivot.StepRead || s.Step == pivot.StepObserve || s.Step == pivot.StepProve {
			proving = append(proving, s.Step)
		}
	}
	return pivoting, proving
}

// Line handles one line of the console.
func (s *Story) Line(line string) {
	if m := stepLine.FindStringSubmatch(line); m != nil {
		step := pivot.Step(m[1])
		pivoting, proving := steps()
		if known := slices.Contains(pivoting, step) || slices.Contains(proving, step); known && !slices.Contains(s.Steps, step) {
			s.Steps = append(s.Steps, step)
		}
	}
	kubelet := strings.Contains(line, "@@kubelet")
	s.Kubelet = s.Kubelet || kubelet
	if s.Tell != nil && (kubelet || strings.Contains(line, "pivot: ") || strings.Contains(line, "Linux version")) {
		s.Tell(line)
	}
}

// CheckStories checks the stories of both boots of a first boot: all steps in order, and kubelet only
// in the second boot.
func CheckStories(first, second *Story) error {
	pivoting, proving := steps()
	switch {
	case !slices.Equal(first.Steps, pivoting):
		return fmt.Errorf("the first console tells the steps %q, want %q", first.Steps, pivoting)
	case !slices.Equal(second.Steps, proving):
		return fmt.Errorf("the second console tells the steps %q, want %q", second.Steps, proving)
	case first.Kubelet || !second.Kubelet:
		return fmt.Errorf("kubelet started: %v on the first console, %v on the second", first.Kubelet, second.Kubelet)
	}
	return nil
}
