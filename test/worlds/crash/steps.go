package crash

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/pivot"
)

// order checks that a program keeps to the order of a change: pivot.Steps.
type order struct {
	step    pivot.Step // that the process has begun last; "": none
	stopped *pivot.Info
	broken  []error
}

// began notes that the process begins a step.
func (o *order) began(e pivot.Event) {
	if e.Kind == pivot.EventBegan {
		o.step = e.Step
	}
}

// info returns what the steps that are shown as one may do, together.
func (o *order) info() (all pivot.Info, known bool) {
	for _, s := range pivot.Steps() {
		if s.Step == o.step {
			all, known = s, true
		}
	}
	for _, s := range pivot.Steps() {
		if s.Shown == o.step {
			all.Writes = max(all.Writes, s.Writes)
		}
	}
	return all, known
}

// wrote notes what an effect reaches.
func (o *order) wrote(effect string, reach pivot.Writes) {
	s, known := o.info()
	switch {
	case !known:
	case reach > s.Writes:
		o.broken = append(o.broken, fmt.Errorf("step %s may write %s, and has made the effect %q: %s", s.Step, s.Writes, effect, reach))
	case o.stopped != nil && reach == pivot.WritesNextBoot && s.Undo != pivot.UndoNone:
		o.broken = append(o.broken, fmt.Errorf("a signal in step %s does not end the run before effect %q", o.stopped.Step, effect))
	}
}

// signal notes that the process gets a signal. In the steps that are shown as the commit, the moment decides.
func (o *order) signal() {
	if s, known := o.info(); known && s.Stops {
		o.stopped = &s
	}
}

// reachOf returns how far an effect reaches; path is that of the file, or "".
func (m *Machine) reachOf(effect, path string) pivot.Writes {
	inside := strings.TrimPrefix(path, m.dir+"/")
	switch verb, _, _ := strings.Cut(effect, " "); {
	case path != "" && strings.HasPrefix(inside, "boot/"),
		slices.Contains([]string{"finalize", "deploy", "set", "one", "unlock", "reboot"}, verb) && path == "":
		return pivot.WritesNextBoot
	case path == "" && slices.Contains([]string{"stage", "discard", "undeploy"}, verb):
		return pivot.WritesDeployment
	case path == "" && slices.Contains([]string{"layer", "import", "release", "remove"}, verb):
		return pivot.WritesRepository
	case strings.HasPrefix(inside, stateroot+"/deploy/") && !strings.HasPrefix(path, m.root+"/") && path != m.root:
		return pivot.WritesDeployment
	case path != "":
		return pivot.WritesRecords
	}
	return pivot.WritesNothing
}

// Live is live, and checks that each process of the machine has kept to the order of a change.
func (m *Machine) Live() error {
	err := m.live()
	if len(m.broken) > 0 && !errors.Is(err, ErrKnown) {
		err = errors.Join(err, m.broken[0])
	}
	return err
}

// touch is an effect on a file.
func (d *disk) touch(verb, path string, half func(), do func() error) error {
	d.path = path
	defer func() { d.path = "" }()
	return d.effect(verb+" "+filepath.Base(path), half, do)
}
