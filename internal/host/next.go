package host

import (
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// observeNext reads what the next boot starts: what is staged, else the default boot
// entry. What is staged and locked no shutdown makes a boot entry of.
func (h *Host) observeNext(state *pivot.State, booted ostree.Deployment, all []ostree.Deployment, paths []string) error {
	staged, err := h.Sysroot().Staged()
	if err != nil {
		return err
	}
	if staged != nil && !staged.Locked {
		return h.observeStaged(state, booted, staged, paths)
	}
	next := booted
	if len(all) > 0 {
		next = all[0]
	}
	if state.Default, err = h.Deployment(next); err != nil {
		return err
	}
	state.DefaultEtc, err = readEtc(next.Path, next, paths)
	return err
}

// observeStaged reads what an orderly shutdown will make the next boot.
func (h *Host) observeStaged(state *pivot.State, booted ostree.Deployment, staged *ostree.Staged, paths []string) error {
	next, err := h.Sysroot().Deployment(staged.Target)
	if err != nil {
		return err
	}
	next.Entry.Options = state.Booted.Options.String() // inherited, unless there is a list
	if staged.HasKernelArguments {
		next.Entry.Options = strings.Join(staged.KernelArguments, " ")
	}
	if state.Default, err = h.Deployment(next); err != nil {
		return err
	}
	state.Default.Staged = true
	state.DefaultEtc, err = stagedEtc(booted, next, state.Etc, paths)
	return err
}
