package lab

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"machine-pivot/pivot"
)

// Story picks, from the console's lines of one power-on, those that tell what the
// machine does: the kernel's first one, pivot's own, and that kubelet started.
type Story struct {
	Tell func(line string) // called with each of them; may be nil

	Steps   []pivot.Step // of pivot, each once, in the order they were told
	Kubelet bool         // it started
}

// stepLine is a line that pivot writes to the console itself (package status). The
// kernel may have written something in front of it.
var stepLine = regexp.MustCompile(`\bpivot: ([a-z]+): `)

// What pivot does at the first power-on of a first boot, and at the one after its reboot.
var (
	pivoting = []pivot.Step{
		pivot.StepRead, pivot.StepObserve, pivot.StepPreflight, pivot.StepPull, pivot.StepPrepare, pivot.StepCommit, pivot.StepReboot,
	}
	proving = []pivot.Step{pivot.StepRead, pivot.StepObserve, pivot.StepProve}
)

// Line takes one line of the console.
func (s *Story) Line(line string) {
	if m := stepLine.FindStringSubmatch(line); m != nil {
		step := pivot.Step(m[1])
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

// CheckStories holds the stories of the two power-ons of a first boot against what
// they must be: every step of pivot's, and kubelet only in the second.
func CheckStories(first, second *Story) error {
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
