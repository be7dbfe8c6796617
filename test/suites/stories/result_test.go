package stories_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// ended is how a run ended, for tests.
type ended struct {
	outcome machine.Outcome
	phase   pivot.Phase
	pending bool
	drain   bool
	name    string // of the MachineConfig
}

func endOf(r machine.Result) ended {
	e := ended{r.Outcome, r.Phase, r.RebootPending, r.Drain.Wanted, ""}
	if r.MachineConfig != nil {
		e.name = r.MachineConfig.Name
	}
	return e
}

// concluded runs something on a machine, and returns its result. The result is ready before a run waits
// for its reboot.
func concluded(t *testing.T, h *hostdir.Host, run func(context.Context, *machine.Machine) error) ended {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := newMachine(t, h)
	m.Result = &machine.Result{}
	var early *machine.Result
	m.Rebooting = func() { early = new(m.Conclude(ctx, nil)); cancel() }
	err := run(ctx, m)
	r := m.Conclude(ctx, err)
	if (early == nil) == (r.Outcome == machine.OutcomeRebooting) || early != nil && endOf(*early) != endOf(r) {
		t.Errorf("before the reboot %+v, after %+v", early, r)
	}
	return endOf(r)
}

// configNames returns the names of the current and the desired MachineConfig, as the status has them.
func configNames(t *testing.T, h *hostdir.Host) string {
	t.Helper()
	m := newMachine(t, h)
	s, err := m.Status(t.Context())
	must(t, err)
	if s.MachineConfig == nil {
		return ""
	}
	current := "none"
	if s.MachineConfig.Current != nil {
		current = s.MachineConfig.Current.Name
	}
	return current + ", " + s.MachineConfig.Desired.Name
}

// TestResultAndNames: what each run says that it did, and which MachineConfigs the
// status names afterwards and after the next boot.
func TestResultAndNames(t *testing.T) {
	h := hostdir.New(t)
	h.Ostree.Version = "2023.6" // can roll back
	h.Write(firstboot.EncapsulatedPath, []byte(`{"metadata":{"name":"first"},"spec":{"kernelArguments":["a=1"]}}`))
	firstBoot := func(ctx context.Context, m *machine.Machine) error {
		return (&firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}).Run(ctx)
	}
	applied := func(text string, when day2.When) func(context.Context, *machine.Machine) error {
		return func(ctx context.Context, m *machine.Machine) error {
			_, err := (&day2.Apply{Machine: m, Config: day2.Config{File: "mc.yaml", Data: []byte(text)}, When: when}).Run(ctx, day2.RunOptions{})
			return err
		}
	}
	back := func(ctx context.Context, m *machine.Machine) error {
		h.Ostree.Version = "2023.6" // which can make a deployment the default
		defer func() { h.Ostree.Version = "" }()
		return (&day2.Rollback{Machine: m}).Run(ctx)
	}
	const second = "metadata: {name: second}\nspec: {kernelArguments: [b=1]}"
	for i, step := range []struct {
		run   func(context.Context, *machine.Machine) error // nil: a reboot
		want  ended
		names string
	}{
		{firstBoot, ended{machine.OutcomeRebooting, pivot.PhaseCommitted, true, false, "first"}, "none, first"},
		{nil, ended{}, "none, first"},
		{firstBoot, ended{machine.OutcomeClosed, pivot.PhaseDone, false, false, "first"}, "first, first"},
		{firstBoot, ended{machine.OutcomeUnchanged, pivot.PhaseDone, false, false, ""}, "first, first"},
		{applied(second, day2.RebootLater), ended{machine.OutcomeCommitted, pivot.PhaseCommitted, true, true, "second"}, "first, second"},
		{back, ended{machine.OutcomeCommitted, pivot.PhaseDone, false, false, "first"}, "first, first"},
		{applied(second, day2.RebootNow), ended{machine.OutcomeRebooting, pivot.PhaseCommitted, true, true, "second"}, "first, second"},
		{nil, ended{}, "second, second"},
		{applied(second, day2.RebootNow), ended{machine.OutcomeUnchanged, pivot.PhaseDone, false, false, "second"}, "second, second"},
		{applied("spec: {kernelArguments: [ostree=/x]}", day2.RebootNow), ended{machine.OutcomeFailed, pivot.PhaseDone, false, false, ""}, "second, second"},
		{back, ended{machine.OutcomeCommitted, pivot.PhaseCommitted, true, true, "first"}, "second, first"},
		{nil, ended{}, "first, first"},
	} {
		if step.run == nil {
			h.Boot()
		} else if got := concluded(t, h, step.run); got != step.want {
			t.Errorf("%d: %+v, want %+v", i, got, step.want)
		}
		if got := configNames(t, h); got != step.names {
			t.Errorf("%d: the status names %q, want %q", i, got, step.names)
		}
	}
	// By another tool: what was asked for last counts.
	must(t, os.Remove(h.Path(firstboot.EncapsulatedPath+".bak")))
	if got := configNames(t, h); got != "none, first" {
		t.Errorf("without a record: %q", got)
	}
}

// TestResultOfFailure: a result without a run has all its parts, and the class of a failure is
// that of the exit status.
func TestResultOfFailure(t *testing.T) {
	r := machine.Result{}.Completed(nil)
	if r.Outcome != machine.OutcomeUnchanged || r.Phase != pivot.PhaseIdle || r.Actions == nil || r.Notes == nil || r.Drain.Because == nil || r.Error != nil {
		t.Errorf("%+v", r)
	}
	r = machine.Result{Outcome: machine.OutcomeCommitted}.Completed(fault.New(fault.CannotWrite, "no space").WithHint("make room"))
	if r.Outcome != machine.OutcomeFailed || r.Error.Class != "write" || r.Error.ExitStatus != 73 || r.Error.Hint != "make room" {
		t.Errorf("%+v", r.Error)
	}
	if r := (machine.Result{}).Completed(errors.New("x")); r.Error.Class != "internal" || r.Error.ExitStatus != 1 {
		t.Errorf("%+v", r.Error)
	}
}
