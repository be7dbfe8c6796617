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

// stepLine is a line that pivot writes to the console itself (package status).
var stepLine = regexp.MustCompile(`^pivot: ([a-z]+): `)

// Line takes one line of the console.
func (s *Story) Line(line string) {
	step := stepLine.FindStringSubmatch(line)
	kubelet := strings.Contains(line, "@@kubelet")
	if step != nil && !slices.Contains(s.Steps, pivot.Step(step[1])) {
		s.Steps = append(s.Steps, pivot.Step(step[1]))
	}
	s.Kubelet = s.Kubelet || kubelet
	if s.Tell != nil && (step != nil || kubelet || strings.Contains(line, "pivot: ") || strings.Contains(line, "Linux version")) {
		s.Tell(line)
	}
}

// CheckStories holds the stories of the two power-ons of a first boot against what
// they must be: every step of pivot's, and kubelet only in the second.
func CheckStories(first, second *Story) error {
	pivoted := []pivot.Step{
		pivot.StepRead, pivot.StepObserve, pivot.StepPreflight, pivot.StepPull, pivot.StepPrepare, pivot.StepCommit, pivot.StepReboot,
	}
	proven := []pivot.Step{pivot.StepRead, pivot.StepObserve, pivot.StepProve}
	switch {
	case !slices.Equal(first.Steps, pivoted):
		return fmt.Errorf("the first console tells the steps %q, want %q", first.Steps, pivoted)
	case !slices.Equal(second.Steps, proven):
		return fmt.Errorf("the second console tells the steps %q, want %q", second.Steps, proven)
	case first.Kubelet || !second.Kubelet:
		return fmt.Errorf("kubelet started: %v on the first console, %v on the second", first.Kubelet, second.Kubelet)
	}
	return nil
}
