package host

import (
	"context"
	"fmt"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// observeNext reads what the next boot starts: the staged deployment, otherwise the default
// boot entry. A staged deployment that is locked is held back: a shutdown does not finalize it.
func (h *Host) observeNext(ctx context.Context, state *pivot.State, booted ostree.Deployment, all []ostree.Deployment, target pivot.Target) error {
	staged, err := h.Sysroot().Staged()
	if err != nil {
		return err
	}
	next := booted
	switch {
	case staged.Next():
		next, err = h.observeStaged(state, booted, staged, target)
	default:
		if len(all) > 0 {
			next = all[0]
		}
		err = h.observeDefault(state, next, target)
	}
	if err == nil && staged != nil && staged.Locked {
		err = h.observeHeldBack(state, staged)
	}
	if err != nil {
		return err
	}
	state.DefaultPackages = state.Packages
	if next.Checksum != booted.Checksum {
		state.DefaultPackages, err = h.packages(ctx, next, target.Packages)
	}
	return err
}

// CheckNothingStaged returns an error if the shutdown is going to write the boot entries anew: libostree then finalizes
// what is staged and not locked, and removes the link and the directory of what was committed before. So the name or
// the link of a boot entry is used past the boot loader, or given to it, only after this check, at each try.
func (h *Host) CheckNothingStaged() error {
	staged, err := h.Sysroot().Staged()
	if err == nil && staged.Next() {
		err = fmt.Errorf("deployment %s is staged: the shutdown makes it the next boot, and writes the boot entries anew", staged.Target.ID())
	}
	return err
}

// observeDefault reads what the default boot entry starts.
func (h *Host) observeDefault(state *pivot.State, next ostree.Deployment, target pivot.Target) (err error) {
	if state.Default, err = h.Deployment(next); err != nil {
		return err
	}
	state.DefaultEtc, err = nextEtc(next, target)
	return err
}

// observeStaged reads what an orderly shutdown will make the default of the next boot.
func (h *Host) observeStaged(state *pivot.State, booted ostree.Deployment, staged *ostree.Staged, target pivot.Target) (next ostree.Deployment, err error) {
	if next, state.Default, err = h.stagedDeployment(state, staged); err != nil {
		return next, err
	}
	state.DefaultEtc, err = stagedEtc(h.Root, booted, next, state.Etc.Carried, target)
	return next, err
}

// observeHeldBack reads a staged deployment that no shutdown finalizes.
func (h *Host) observeHeldBack(state *pivot.State, staged *ostree.Staged) error {
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
