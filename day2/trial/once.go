package trial

import (
	"fmt"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/ways"
	"machine-pivot/pivot"
)

const comesBack = ": if it does not come up, the next power cycle boots the old one"

// once returns pivot.Trying.Once for the method with which Enter will reboot.
func (c *Conductor) once(method settings.RebootMethod) func(pivot.Plan) (how string, err error) {
	return func(plan pivot.Plan) (how string, err error) { return c.onceBy(method, c.Host.CheckKexecInto(plan)) }
}

// checkOnce returns an error if no system at all could be entered only once here.
func (c *Conductor) checkOnce(method settings.RebootMethod) error {
	_, err := c.onceBy(method, c.Host.CheckKexec(ostree.BootEntry{}))
	return err
}

// onceBy says which of the ways of bootOnce is going to be taken, in their order. noKexec says why kexec cannot start the
// new system. Without any, it returns an error, and says what that means.
func (c *Conductor) onceBy(method settings.RebootMethod, noKexec error) (how string, err error) {
	asked := ways.Once(method) == settings.RebootKexec
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
