package host

import (
	"context"
	"fmt"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// findNext finds what the next boot starts: the staged deployment, otherwise the default boot entry. A staged
// deployment that is locked is held back: a shutdown does not finalize it.
func (h *Host) findNext(state *pivot.State, booted ostree.Deployment, all []ostree.Deployment) (next ostree.Deployment, err error) {
	staged, err := h.Sysroot().Staged()
	if err != nil {
		return next, err
	}
	if staged.Next() {
		next, state.Default, err = h.stagedDeployment(state, staged)
	} else {
		if next = booted; len(all) > 0 {
			next = all[0]
		}
		state.Default, err = h.Deployment(next)
	}
	if err == nil && staged != nil && staged.Locked {
		err = h.findHeldBack(state, staged)
	}
	return next, err
}

// observeNext reads the /etc and the packages that the next boot will find.
func (h *Host) observeNext(ctx context.Context, state *pivot.State, found systems, target pivot.Target) (err error) {
	if state.Default.Staged {
		state.DefaultEtc, err = stagedEtc(h.Root, found.booted, found.next, state.Etc.Carried, target)
	} else {
		state.DefaultEtc, err = nextEtc(found.next, target)
	}
	if err != nil {
		return err
	}
	state.DefaultPackages = state.Packages
	if found.next.Checksum != found.booted.Checksum {
		state.DefaultPackages, err = h.packages(ctx, found.next, target.Packages)
	}
	return err
}

// CheckNothingStaged returns an error if the shutdown will write new boot entries. Then libostree finalizes what is
// staged and not locked, and removes the link and directory of what was committed before. So the name or the link of a
// boot entry is used past the boot loader, or given to it, only after this check, at each try.
func (h *Host) CheckNothingStaged() error {
	staged, err := h.Sysroot().Staged()
	if err == nil && staged.Next() {
		err = fmt.Errorf("deployment %s is staged: the shutdown makes it the next boot, and writes the boot entries anew", staged.Target.ID())
	}
	return err
}

// findHeldBack reads a staged deployment that no shutdown finalizes.
func (h *Host) findHeldBack(state *pivot.State, staged *ostree.Staged) error {
	_, d, err := h.stagedDeployment(state, staged)
	if err == nil {
		state.HeldBack = &d
	}
	return err
}

// stagedDeployment reads a staged deployment, with the kernel arguments that it will have.
func (h *Host) stagedDeployment(state *pivot.State, staged *ostree.Staged) (d ostree.Deployment, p pivot.Deployment, err error) {
	if d, err = h.Sysroot().Deployment(staged.Target); err != nil {
		return d, p, err
	}
	d.Entry.Options = state.Booted.Options.String() // inherited unless the staged deployment has a list
	if staged.HasKernelArguments {
		d.Entry.Options = strings.Join(staged.KernelArguments, " ")
	}
	p, err = h.Deployment(d)
	p.Staged = true
	return d, p, err
}

// NextLine returns the kernel command line of the next boot: that of the default boot entry, or
// the running kernel's if there is none.
func (h *Host) NextLine() (kargs.Line, error) {
	if all, err := h.Sysroot().Deployments(); err == nil && len(all) > 0 && all[0].Entry.Options != "" {
		return kargs.Split(all[0].Entry.Options), nil
	}
	return h.cmdline()
}
