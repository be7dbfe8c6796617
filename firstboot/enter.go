package firstboot

import (
	"context"
	"errors"
	"strings"

	"machine-pivot/internal/enter"
	"machine-pivot/internal/host"
	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
)

// wayIn is what is known about entering the committed system without a reboot.
type wayIn struct {
	early   Early         // nil: this is no initramfs
	running enter.Running // read before the commit
	err     error         // why it could not be read
}

// lookForWayIn reads, before the commit, what it takes to enter the committed system, if the settings ask for that.
func (b *FirstBoot) lookForWayIn(ctx context.Context, method host.RebootMethod) (w wayIn) {
	place, early := b.Place.(Initramfs)
	if method != host.RebootEnter || !early {
		return w
	}
	w.early = place.Early
	w.running, w.err = w.early.Running(ctx)
	return w
}

// goOn ends this boot in the committed system: by entering it, if that was asked for and is possible, or by a reboot.
// Nothing that goes wrong with entering fails a first boot, because a reboot leads into the same system. A system that
// the boot loader starts only once is not entered: a power cycle would not lead back.
func (b *FirstBoot) goOn(ctx context.Context, w wayIn, method host.RebootMethod) error {
	if method != host.RebootEnter || b.Progress.Content.Trial != nil {
		return b.enter(ctx, method)
	}
	if err := b.requestEnter(ctx, w); err != nil {
		b.Progress.Note("a reboot: " + err.Error())
		return b.enter(ctx, host.RebootFirmware)
	}
	b.Report().Outcome = machine.OutcomeEntering
	b.Progress.Note("the boot goes on into the new system, without a reboot")
	return nil
}

// requestEnter has the initramfs enter the committed deployment once this run has ended.
func (b *FirstBoot) requestEnter(ctx context.Context, w wayIn) error {
	switch {
	case w.early == nil:
		return errors.New("cannot enter the new system: only an initramfs can")
	case w.err != nil:
		return w.err
	}
	target := b.Progress.Content.Target
	state, err := b.Host.Observe(ctx, target)
	if err != nil {
		return err
	}
	if lacks := pivot.Failures(state.AsIfRebooted(), target); len(lacks) > 0 || !state.Pending() {
		return errors.New("cannot enter the new system: the next boot does not start it: " + strings.Join(lacks, "; "))
	}
	return w.early.RequestEnter(w.running, state.Default.ID())
}

// expectedWayIn returns what a plan says about entering the new system, if the settings ask for that. Whether the image
// has the running kernel and initramfs is known only when it is there.
func (b *FirstBoot) expectedWayIn(plan pivot.Plan) []string {
	settings, err := b.Settings()
	switch {
	case err != nil || settings.RebootMethod != host.RebootEnter || plan.Reboots == 0:
		return nil
	case !plan.Kargs.Final.Equal(plan.From().Booted.Options):
		return []string{"reboot-method=enter: a reboot all the same, because the kernel arguments change"}
	}
	return []string{"reboot-method=enter: possibly no reboot, if the first boot runs in the initramfs and the new system has the running kernel and initramfs"}
}
