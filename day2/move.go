package day2

import (
	"context"

	"machine-pivot/internal/machine"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// RunOptions says what was done before a command. Carry makes one; the zero value is for a command that may run now.
type RunOptions struct {
	// Downloaded says that images come from an earlier download. No registry is asked for one.
	Downloaded bool
	// Unchanged says that there was nothing to change a moment ago, and so nothing was waited for. A change that is found
	// all the same waits.
	Unchanged bool
}

// open opens the journal for a command that may change the machine. It returns an error if the
// running system is on trial, or if it is too late by now.
func (t RunOptions) open(ctx context.Context, m *machine.Machine) error {
	if err := m.OpenToChange(ctx); err != nil || t.Unchanged {
		return err
	}
	return m.Joined().Before(ctx, pivot.StepReady, nil)
}

// move makes the next boot what an administrator asks for, and reboots if that is asked for, too.
type move struct {
	*machine.Machine
	options   RunOptions
	settings  settings.Settings
	reboot    bool
	converger *pivot.Converger // for the plan that is carried out
	// follows says that the machine follows the image as it is named, also if it has that image already.
	follows bool
}

// newMove returns a move that takes images from where options says.
func newMove(m *machine.Machine, options RunOptions, reboot bool) (*move, error) {
	settings, err := m.Settings()
	if err != nil {
		return nil, err
	}
	images, err := imagesFor(m, options)
	if err != nil {
		return nil, err
	}
	move := &move{Machine: m, options: options, settings: settings, reboot: reboot}
	move.takeFrom(images)
	return move, nil
}

// takeFrom has the move carry out plans with images from a source.
func (m *move) takeFrom(images machine.Images) {
	m.converger = converger(m.Machine, images)
}

// converger returns the machine's Converger. It records an image before it is pulled.
func converger(m *machine.Machine, images machine.Images) *pivot.Converger {
	c := m.Converger(images)
	c.Pulling = func(image pivot.Image) error { return beginPull(m, image.Pinned()) }
	return c
}

// preview returns a plan as it is shown, of what is asked for. The journal must be open.
func preview(ctx context.Context, m *machine.Machine, options RunOptions, asked func() (pivot.Request, error)) (plan pivot.Plan, err error) {
	defer m.Pulled().Close()
	images, err := imagesFor(m, options)
	if err != nil {
		return plan, err
	}
	req, err := asked()
	if err != nil {
		return plan, err
	}
	c := converger(m, images)
	req.Shown = true
	if plan, err = c.Plan(ctx, req); err == nil {
		plan, err = c.Preview(ctx, plan)
	}
	if err == nil {
		plan = m.WithWay(ctx, plan, false)
	}
	return plan, err
}

// plan plans a move.
func (m *move) plan(ctx context.Context, req pivot.Request) (pivot.Plan, error) {
	req.Reboots = m.reboot
	req.WithoutBoundImages = m.settings.BoundImages == settings.BoundImagesIgnore
	m.Progress.Begin(pivot.StepObserve, "looking at the host")
	plan, err := m.converger.Plan(ctx, req)
	if err == nil {
		err = plan.Err()
	}
	return plan, err
}

// findWays finds out how the new system is going to be entered, and notes it, if the command reboots into it.
func (m *move) findWays(ctx context.Context, plan pivot.Plan, d pivot.Decision) (ways machine.Ways) {
	if !d.LeadsOn() || !m.reboot {
		return ways
	}
	ways = m.FindWays(ctx, m.settings.RebootMethod, m.NextSystem(plan))
	if text := ways.Text(); text != "" {
		m.Progress.Note(text)
	}
	return ways
}

// carryOut carries out what is decided about a plan. It reports whether anything had to change.
func (m *move) carryOut(ctx context.Context, plan pivot.Plan, d pivot.Decision) (changed bool, err error) {
	if d.Action == pivot.ActionWait || d.Action == pivot.ActionReboot {
		if err := m.Joined().Before(ctx, pivot.StepReady, &plan); err != nil {
			return false, err
		}
	}
	if d.Action == pivot.ActionWait {
		return m.await(ctx, plan)
	}
	ways := m.findWays(ctx, plan, d)
	err = m.converger.Converge(ctx, plan, d)
	switch {
	case err != nil:
		return false, err
	case d.Action == pivot.ActionClose:
		if err := m.follow(plan); err != nil {
			return false, err
		}
		m.Progress.Note("nothing to do: the machine is what was asked for")
		m.WarnAboutNextBoot(plan)
		dropUsedDownload(ctx, m.Machine, plan.To().Image, m.options.Downloaded, false)
		return false, nil
	case d.Action == pivot.ActionReboot:
		if err := m.follow(plan); err != nil {
			return false, err
		}
		m.Progress.Note("nothing to do but to reboot: the next boot is what was asked for")
	}
	m.Report().Committed(d.Action != pivot.ActionReboot)
	dropUsedDownload(ctx, m.Machine, plan.To().Image, m.options.Downloaded, true)
	if m.reboot {
		return true, m.EnterNext(ctx, ways)
	}
	m.Progress.Note("the new system is committed. Until the reboot, leave /etc, rpm-ostree and bootc alone: changes of /etc are lost, " +
		"and anything staged on top (rpm-ostree kargs or install, bootc upgrade or switch) becomes the next boot, without the files and units that were asked for")
	return true, nil
}
