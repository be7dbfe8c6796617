package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// Way is a way into the next system, after its commit.
type Way struct {
	Method settings.RebootMethod
	By     string // completes "the new system is entered"
	// Keeps is what must be so that the running kernel can be kept, which only the commit decides. It completes "if".
	// It is "" for a way that starts a kernel.
	Keeps string
}

// cheapest returns all ways in the order in which settings.RebootAuto tries them: each saves what the one after it does in
// addition, and the last is always possible.
func cheapest() []Way {
	return []Way{
		{Method: settings.RebootEnter, By: "without a reboot", Keeps: "the initramfs commits it, and kernel, initramfs and kernel arguments stay"},
		{Method: settings.RebootSoft, By: "by a soft reboot", Keeps: "kernel, initramfs, kernel arguments and SELinux policy stay"},
		{Method: settings.RebootKexec, By: "by kexec"},
		{Method: settings.RebootFirmware, By: "by an ordinary reboot"},
	}
}

// WaysOf returns the ways into the next system that a method stands for, in the order in which they are
// tried.
func WaysOf(method settings.RebootMethod) []Way {
	return slices.DeleteFunc(cheapest(), func(w Way) bool {
		return method != settings.RebootAuto && w.Method != method && w.Method != settings.RebootFirmware
	})
}

// OnceBy returns the method for a system that is entered only once. A way that keeps the running kernel never is one:
// see cannot.
func OnceBy(method settings.RebootMethod) settings.RebootMethod {
	starts := slices.DeleteFunc(WaysOf(method), func(w Way) bool { return w.Keeps != "" })
	return starts[0].Method
}

// NextSystem is what is known about the next system before its commit.
type NextSystem struct {
	Once  bool // it is entered only once, on trial or with a fallback
	Kargs bool // its kernel arguments are not those of the running system
	// Kexec returns why kexec cannot start it, as far as that is known; nil asks nothing.
	Kexec func() error
}

// cannot returns why a next system cannot be entered by the way; nil if it may.
func (w Way) cannot(next NextSystem) error {
	switch {
	case w.Method == settings.RebootKexec && next.Kexec != nil:
		return next.Kexec()
	case w.Keeps == "":
		return nil
	case next.Once:
		return errors.New("the new system is entered only once, and without the start of a kernel a power cycle would not go back")
	case next.Kargs:
		return errors.New("the kernel arguments change")
	}
	return nil
}

// Instead says why the next of two ways is taken.
func (w Way) Instead(next Way, why error) string {
	return fmt.Sprintf("not %s but %s: %v", w.By, next.By, why)
}

// Ways is what is known, before a commit, about the ways into the system that it makes the next one. FindWays makes it.
type Ways struct {
	ordered []Way
	cannot  map[settings.RebootMethod]error // why a way is not possible
	next    Continuation                    // nil without a way that needs no reboot
}

// Continuation has the boot that runs continue in a committed deployment, given by its ID, once this program has ended. The
// error says why that is impossible.
type Continuation func(ctx context.Context, deployment string) error

// FindWays finds out, before a commit, by which ways of a method the next system can be entered.
func (m *Machine) FindWays(ctx context.Context, method settings.RebootMethod, next NextSystem) Ways {
	return m.findWays(ctx, method, next, m.Where().Continuation)
}

func (m *Machine) findWays(ctx context.Context, method settings.RebootMethod, next NextSystem, find func(context.Context) (Continuation, error)) Ways {
	w := Ways{ordered: WaysOf(method), cannot: map[settings.RebootMethod]error{}}
	for _, way := range w.ordered {
		err := way.cannot(next)
		switch {
		case err != nil:
		case way.Method == settings.RebootEnter:
			w.next, err = find(ctx)
		case way.Method == settings.RebootSoft:
			err = m.checkSoft(ctx)
		}
		w.cannot[way.Method] = err
	}
	return w
}

// Text says by which way the next system is going to be entered, and why not by one before it, as far as that is known. It
// returns "" for an ordinary reboot that is asked for.
func (w Ways) Text() string {
	if len(w.ordered) == 1 {
		return ""
	}
	var possible, declined []string
	for _, way := range w.ordered {
		switch why := w.cannot[way.Method]; {
		case why != nil:
			declined = append(declined, fmt.Sprintf("not %s, because %v", way.By, why))
		case way.Keeps != "":
			possible = append(possible, way.By+" if "+way.Keeps)
		default:
			possible = append(possible, way.By)
		}
	}
	return "the new system is entered " + strings.Join(append([]string{strings.Join(possible, ", else ")}, declined...), "; ")
}

// possible returns the ways that are left, in order. The last is an ordinary reboot.
func (w Ways) possible() []Way {
	return slices.DeleteFunc(slices.Clone(w.ordered), func(way Way) bool { return w.cannot[way.Method] != nil })
}

// WithWay returns a plan as it is shown, with a note about how the next system is going to be entered, unless by an
// ordinary reboot that is asked for. An initramfs may carry out the plan of a first boot. Settings that cannot be used stop the change, and not the plan.
func (m *Machine) WithWay(ctx context.Context, plan pivot.Plan, firstBoot bool) pivot.Plan {
	chosen, err := m.Settings()
	if err != nil || plan.Reboots == 0 {
		return plan
	}
	find := m.Where().Continuation
	if firstBoot && chosen.Mode == settings.ModeInitramfs {
		find = func(context.Context) (Continuation, error) { return nil, nil }
	}
	if text := m.findWays(ctx, chosen.RebootMethod, m.NextSystem(plan), find).Text(); text != "" {
		plan.Notes = append(slices.Clone(plan.Notes), text)
	}
	return plan
}

// NextSystem returns what a plan says about the next system.
func (m *Machine) NextSystem(plan pivot.Plan) NextSystem {
	return NextSystem{
		Once: plan.Tries(), Kargs: plan.From().NeedsKernel(plan.To(), plan.Kargs.Final),
		Kexec: func() error { return m.Host.CheckKexecInto(plan) },
	}
}

// goOn has the boot continue in the committed system, without a reboot, when this program has ended.
func (m *Machine) goOn(ctx context.Context, next Continuation) error {
	target := m.Progress.Content.Target
	state, err := m.Host.Observe(ctx, target)
	if err != nil {
		return err
	}
	if lacks := pivot.Failures(state.AsIfRebooted(), target); len(lacks) > 0 || !state.Pending() {
		return fmt.Errorf("the next boot does not start it: %s", strings.Join(lacks, "; "))
	}
	if err := next(ctx, state.Default.ID()); err != nil {
		return err
	}
	m.Report().Outcome = OutcomeEntering
	m.Progress.Note("the boot continues in the new system, without a reboot")
	return nil
}
