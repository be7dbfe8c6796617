package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/settings"
	"machine-pivot/internal/ways"
	"machine-pivot/pivot"
)

// Ahead is what is known, before a commit, about the ways into the system that it makes the next one. LookAhead makes it.
type Ahead struct {
	ways   []ways.Way
	cannot map[settings.RebootMethod]error // why a way is not possible
	door   Door                            // nil without a way that needs no reboot
}

// Door has the boot that runs go on into a committed deployment, given by its ID, once this program has ended. The
// error says why that is impossible.
type Door func(ctx context.Context, deployment string) error

// LookAhead finds out, before a commit, by which ways of a method the next system can be entered.
func (m *Machine) LookAhead(ctx context.Context, method settings.RebootMethod, next ways.Next) Ahead {
	return m.lookAhead(ctx, method, next, m.Where().Door)
}

func (m *Machine) lookAhead(ctx context.Context, method settings.RebootMethod, next ways.Next, find func(context.Context) (Door, error)) Ahead {
	a := Ahead{ways: ways.Of(method), cannot: map[settings.RebootMethod]error{}}
	for _, way := range a.ways {
		err := way.Cannot(next)
		switch {
		case err != nil:
		case way.Method == settings.RebootEnter:
			a.door, err = find(ctx)
		case way.Method == settings.RebootSoft:
			err = m.checkSoft(ctx)
		}
		a.cannot[way.Method] = err
	}
	return a
}

// Text says how the next system will be entered and, as far as that is known, why not in a cheaper way; "" if an
// ordinary reboot was asked for.
func (a Ahead) Text() string { return ways.Foresee(a.ways, a.cannot) }

// possible returns the ways that are left, in order. The last is an ordinary reboot.
func (a Ahead) possible() []ways.Way {
	return slices.DeleteFunc(slices.Clone(a.ways), func(w ways.Way) bool { return a.cannot[w.Method] != nil })
}

// WithWay returns a plan as it is shown, with a note about how the next system is going to be entered, unless by an
// ordinary reboot that is asked for. An initramfs may carry out the plan of a first boot. Settings that cannot be used stop the change, and not the plan.
func (m *Machine) WithWay(ctx context.Context, plan pivot.Plan, firstBoot bool) pivot.Plan {
	chosen, err := m.Settings()
	if err != nil || plan.Reboots == 0 {
		return plan
	}
	find := m.Where().Door
	if firstBoot && chosen.Mode == settings.ModeInitramfs {
		find = func(context.Context) (Door, error) { return nil, nil }
	}
	if text := m.lookAhead(ctx, chosen.RebootMethod, m.NextOf(plan), find).Text(); text != "" {
		plan.Notes = append(slices.Clone(plan.Notes), text)
	}
	return plan
}

// NextOf returns what a plan says about the next system.
func (m *Machine) NextOf(plan pivot.Plan) ways.Next {
	return ways.Next{
		Once: plan.Tries(), Kargs: plan.From().NeedsKernel(plan.To(), plan.Kargs.Final),
		Kexec: func() error { return m.Host.CheckKexecInto(plan) },
	}
}

// goOn has the boot go on into the committed system, without a reboot, when this program has ended.
func (m *Machine) goOn(ctx context.Context, door Door) error {
	target := m.Progress.Content.Target
	state, err := m.Host.Observe(ctx, target)
	if err != nil {
		return err
	}
	if lacks := pivot.Failures(state.AsIfRebooted(), target); len(lacks) > 0 || !state.Pending() {
		return fmt.Errorf("the next boot does not start it: %s", strings.Join(lacks, "; "))
	}
	if err := door(ctx, state.Default.ID()); err != nil {
		return err
	}
	m.Report().Outcome = OutcomeEntering
	m.Progress.Note("the boot continues in the new system, without a reboot")
	return nil
}
