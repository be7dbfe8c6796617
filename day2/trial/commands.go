package trial

import (
	"context"
	"slices"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/retry"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// The names of the flags.
const (
	flagTry, flagConfirm, flagCheck = "try", "confirm", "check"
)

// flags returns the flags of the commands that can try a new system.
func flags() []machine.Flag {
	return []machine.Flag{
		{Name: flagTry, Bare: "10m0s", Suggests: []string{"10m", "30m", "2h"},
			Usage: "reboot into the new system on trial: keep it if its checks succeed and it is confirmed within `DURATION` (default 10m) of its kernel's start, else boot the old one"},
		{Name: flagConfirm, Allowed: []string{string(ConfirmByHand), string(ConfirmAuto)},
			Usage: "how a system on trial is confirmed: by hand, with \"pivot confirm\", or automatically when its checks succeed"},
		{Name: flagCheck, Usage: "shell `COMMAND` that must succeed in the system on trial (repeatable)"},
	}
}

// check implements machine.Feature: a trial needs its reboot.
func check(given machine.Given) (reboots string, err error) {
	terms, err := termsOf(given)
	if terms != nil {
		reboots = flagTry
	}
	return reboots, err
}

// termsOf returns the terms of the requested trial; nil if none is requested.
func termsOf(given machine.Given) (*Terms, error) {
	terms := Terms{Confirm: ConfirmByHand, Checks: given[flagCheck]}
	for _, confirm := range given[flagConfirm] {
		terms.Confirm = Confirm(confirm)
	}
	for _, limit := range given[flagTry] {
		var err error
		if terms.For, err = time.ParseDuration(limit); err != nil {
			return nil, fault.New(fault.Usage, "cannot use --try=%s: %w", limit, err)
		}
	}
	switch {
	case terms.For == 0 && (len(terms.Checks) > 0 || terms.Confirm != ConfirmByHand):
		return nil, fault.New(fault.Usage, "cannot use --check or --confirm without --try")
	case terms.For == 0:
		return nil, nil
	case terms.For < time.Second:
		return nil, fault.New(fault.Usage, "cannot use --try=%v: it is less than a second", terms.For)
	case slices.Contains(terms.Checks, ""):
		return nil, fault.New(fault.Usage, "cannot use --check: it is empty")
	}
	return &terms, nil
}

// locked runs a step of a trial under the machine's lock, with the journal open. It calls wait
// between two tries to take the lock.
func locked(ctx context.Context, m *machine.Machine, wait func(context.Context) error, step func() error) error {
	return m.Host.WithLock(ctx, wait, func() error {
		if err := m.OpenToWrite(ctx); err != nil {
			return err
		}
		return step()
	})
}

// Program conducts the trial of the running system, or closes one that is over. Unit runs it.
type Program struct {
	*machine.Machine
	// Sleep waits between two checks; nil: retry.Sleep.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Run returns when nothing is on trial any more, or ends with a reboot: see Conductor.
func (t *Program) Run(ctx context.Context) error {
	alone := func(step func() error) error { return locked(ctx, t.Machine, t.wait, step) }
	err := conductor(t.Machine).Conduct(ctx, alone, t.wait)
	t.TellBootc()
	failed := t.Progress.Content.Phase == pivot.PhaseFailed
	switch {
	case err == nil:
		t.Progress.End(nil)
	case ctx.Err() != nil:
		note := "stopped: the old system stays the default, and pivot confirm can still keep this one"
		if failed {
			note = "stopped: the next boot completes the return from the trial that has failed"
		}
		t.Progress.Note(note)
		t.Progress.End(nil)
		return nil
	case failed:
		t.Progress.Note(err.Error()) // the journal keeps the reason why the trial failed
		t.Progress.Over(err)
	default:
		t.Progress.Fail(err)
	}
	return err
}

func (t *Program) wait(ctx context.Context) error {
	if t.Sleep != nil {
		return t.Sleep(ctx, Look)
	}
	return retry.Sleep(ctx, Look)
}

// conduct returns the command that Unit runs.
func conduct() machine.Command {
	return machine.Command{
		Name:    "trial",
		Short:   "Conduct or close the trial of a new system; run by " + Unit,
		Long:    "Conduct the trial of the running system, or close a trial that has failed. Run by " + Unit + ".",
		Example: "  pivot trial",
		Check: func(m *machine.Machine, byUnit bool) error {
			if there, err := m.Host.Has(pivot.StateDir + "/" + Name); err == nil && !there && !byUnit {
				return fault.New(fault.Usage, "no system is on trial here").WithHint("a trial begins with --try: pivot rebase --try IMAGE, pivot apply --try MACHINECONFIG")
			}
			return nil
		},
		Run: func(ctx context.Context, m *machine.Machine, _ map[string]bool) error {
			t := Program{Machine: m}
			return t.Run(ctx)
		},
	}
}

// KeepByHand makes the running system, which is on trial, the default permanently if it has proven itself.
func KeepByHand(ctx context.Context, m *machine.Machine) error {
	// The trial's unit takes the lock from time to time.
	wait := func(ctx context.Context) error { return retry.Sleep(ctx, time.Second) }
	err := locked(ctx, m, wait, func() error { return conductor(m).Confirm(ctx) })
	m.TellBootc()
	m.Progress.End(err)
	return err
}

func confirm() machine.Command {
	return machine.Command{
		Name:  "confirm",
		Short: "Confirm the running system on trial, so that it is kept",
		Long: "Confirm the running system, which was booted on trial with --try, so that it is kept. This requires that\n" +
			"the running system matches the target, the units of the setting \"health\" in " + settings.Path + "\n" +
			"are active, and each --check command succeeds. Otherwise the command prints what is missing and exits\n" +
			"with status 69, and the trial continues.",
		Example: "  pivot confirm",
		Check:   func(m *machine.Machine, _ bool) error { return m.Host.CheckBooted() },
		Run:     func(ctx context.Context, m *machine.Machine, _ map[string]bool) error { return KeepByHand(ctx, m) },
	}
}
