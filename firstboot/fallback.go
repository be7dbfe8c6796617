package firstboot

import (
	"context"

	"machine-pivot/internal/machine"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// A first boot with the setting fallback=auto: the old system stays the default of the boot loader,
// which starts the new one once. There, the first boot keeps it if it proves it, and returns
// otherwise. If the new system does not come up at all, the next boot is the old one.

// open opens the journal for a run that may change the machine, and reports whether the run has to prove the system
// that runs. In an initramfs it then returns an error of kind fault.Later: only the started system does that.
//
// A journal's trial is dropped only by what settles the default entry and the boot loader: keep, for a system that is
// to be proven, and Settle for any other.
func (b *FirstBoot) open(ctx context.Context) (proves bool, err error) {
	if b.Fallback == nil {
		return false, b.OpenToChange(ctx)
	}
	if err := b.OpenToWrite(ctx); err != nil {
		return false, err
	}
	proves, err = b.Fallback.Proves(ctx, b.Machine)
	switch {
	case err != nil:
		return false, err
	case proves && !b.Where().Started():
		return true, later("this system was booted once, and the started system proves it")
	case proves:
		return true, nil
	case b.Unfinished == nil:
		return false, nil
	}
	return false, b.Unfinished.Settle(ctx, b.Machine) // the journal is open: it may not have what is known by now
}

// tryOnce adds to a request that the new system is to be entered once, if the setting says so. It returns
// why that is not possible.
func (b *FirstBoot) tryOnce(ctx context.Context, req *pivot.Request, chosen settings.Settings) (why error) {
	if b.Fallback == nil || b.NoReboot || chosen.Fallback != settings.FallbackAuto {
		return nil
	}
	req.Trying, why = b.Fallback.Try(ctx, b.Machine, chosen.RebootMethod)
	return why
}

// enter enters the committed system.
func (b *FirstBoot) enter(ctx context.Context, method settings.RebootMethod, ahead machine.Ahead) error {
	if b.Progress.Content.Trial == nil {
		return b.EnterNext(ctx, ahead)
	}
	if err := b.AwaitOthers(ctx); err != nil {
		return err
	}
	return b.Fallback.Enter(ctx, b.Machine, method)
}

// keep makes the running system the default, if it was entered once.
func (b *FirstBoot) keep(ctx context.Context) error {
	if b.Progress.Content.Trial == nil {
		return nil
	}
	return b.Fallback.Keep(ctx, b.Machine)
}

// foresee notes, before the commit of a plan, how the new system is going to be entered, and what does not return
// the machine from it if it hangs.
func (b *FirstBoot) foresee(plan pivot.Plan, ahead machine.Ahead, noFallback error) {
	if noFallback != nil {
		b.Progress.Note(b.Fallback.Without(noFallback))
	}
	b.NoteHang(plan)
	if text := ahead.Text(); text != "" && !b.NoReboot {
		b.Progress.Note(text)
	}
}
