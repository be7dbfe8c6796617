package trial

import (
	"fmt"

	"machine-pivot/internal/machine"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

const comesBack = ": if it does not come up, the next power cycle boots the old one"

// judgeOnce judges how a plan's new system is entered only once, as far as that is known. It depends on the boot
// entry, of which the image may bring a part. If a fallback is not possible, the plan has none.
func (f *feature) judgeOnce(plan *pivot.Plan) {
	if f.trying == nil {
		return
	}
	how, err := f.onceBy(f.trying.method, f.Host.CheckKexecInto(*plan))
	if err != nil && f.trying.fallback {
		f.without, how = err, ""
	}
	*plan = plan.ByOnce(how)
}

// learn judges a plan again when its image is there, and notes what has changed.
func (f *feature) learn(plan *pivot.Plan) error {
	said, note := plan.Once(), f.note
	if plan.Request().Shown {
		note = func(string) {}
	}
	if err := f.trying.accept(plan.To().Image.Commit); err != nil {
		if !f.trying.fallback {
			return err
		}
		note("without a fallback: " + err.Error())
		*plan = plan.ByOnce("")
		return nil
	}
	switch f.judgeOnce(plan); {
	case !plan.Tries():
		note("without a fallback: " + f.without.Error())
	case plan.Once() != said:
		note(plan.Once())
	}
	return nil
}

// checkOnce returns an error if no system at all could be entered only once here.
func (c *Conductor) checkOnce(method settings.RebootMethod) error {
	_, err := c.onceBy(method, c.Host.CheckKexec(ostree.BootEntry{}))
	return err
}

// onceBy says which of the ways of bootOnce is going to be taken, in their order. noKexec says why kexec cannot start the
// new system. Without any, it returns an error, and says what that means.
func (c *Conductor) onceBy(method settings.RebootMethod, noKexec error) (how string, err error) {
	asked := machine.OnceBy(method) == settings.RebootKexec
	if asked && noKexec == nil {
		return "the new system is booted once, by kexec" + comesBack, nil
	}
	loader, err := c.Host.OneShot()
	switch {
	case err == nil:
		return "the new system is booted once, by " + loader + comesBack, nil
	case asked:
		err = fmt.Errorf("%w; nor by kexec: %w", err, noKexec)
	}
	how = fmt.Sprintf("warning: the new system is the default boot entry until its systemd starts. If its kernel hangs before that, somebody must choose the old system in the boot menu: %v", err)
	if noKexec == nil {
		how += "; with --reboot-method=kexec the new system is booted only once"
	}
	return how, err
}
