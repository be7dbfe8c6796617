// Package ways has the ways into the next system, after its commit: which there are, in which order they are tried.
// What is known before the commit about which is going to be taken. It is pure.
package ways

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/settings"
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

// Of returns the ways into the next system that a method stands for, in the order in which they are
// tried.
func Of(method settings.RebootMethod) []Way {
	return slices.DeleteFunc(cheapest(), func(w Way) bool {
		return method != settings.RebootAuto && w.Method != method && w.Method != settings.RebootFirmware
	})
}

// Once returns the method for a system that is entered only once. A way that keeps the running kernel never is one:
// see Cannot.
func Once(method settings.RebootMethod) settings.RebootMethod {
	starts := slices.DeleteFunc(Of(method), func(w Way) bool { return w.Keeps != "" })
	return starts[0].Method
}

// Next is what is known about the next system before its commit.
type Next struct {
	Once  bool // it is entered only once, on trial or with a fallback
	Kargs bool // its kernel arguments are not those of the running system
	// Kexec returns why kexec cannot start it, as far as that is known; nil asks nothing.
	Kexec func() error
}

// Cannot returns why a next system cannot be entered by the way; nil if it may.
func (w Way) Cannot(next Next) error {
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

// Foresee says which of the ways into the next system is going to be taken, and why those before it are not. cannot
// has the reasons that are known before the commit. It returns "" for an ordinary reboot that is asked for.
func Foresee(ways []Way, cannot map[settings.RebootMethod]error) string {
	if len(ways) == 1 {
		return ""
	}
	var possible, declined []string
	for _, way := range ways {
		switch why := cannot[way.Method]; {
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
