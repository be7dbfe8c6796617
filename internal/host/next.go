package host

import (
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// observeNext reads what the next boot starts: what is staged, else the default boot
// entry. What is staged and locked no shutdown makes a boot entry of.
func (h *Host) observeNext(state *pivot.State, booted ostree.Deployment, all []ostree.Deployment, files []string) error {
	staged, err := h.Sysroot().Staged()
	if err != nil {
		return err
	}
	if staged != nil && !staged.Locked {
		return h.observeStaged(state, booted, staged, files)
	}
	next := booted
	if len(all) > 0 {
		next = all[0]
	}
	if state.Default, err = h.Deployment(next); err != nil {
		return err
	}
	state.DefaultFiles, err = hostfiles.ReadEntries(next.Path, files)
	return err
}

// observeStaged reads what an orderly shutdown will make the next boot.
func (h *Host) observeStaged(state *pivot.State, booted ostree.Deployment, staged *ostree.Staged, files []string) error {
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
	state.DefaultFiles, err = merged(booted, next, state.Files, files)
	return err
}

// merged are the files that a deployment's /etc will have: libostree takes the
// running one's where they differ from their image's, and else the new image's.
func merged(booted, next ostree.Deployment, running map[string]hostfiles.Entry, paths []string) (map[string]hostfiles.Entry, error) {
	have, err := hostfiles.ReadEntries(booted.Path+"/usr", paths)
	if err != nil {
		return nil, err
	}
	result, err := hostfiles.ReadEntries(next.Path+"/usr", paths)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		file, runs := running[path]
		shipped, ships := have[path]
		switch {
		case runs && !(ships && file == shipped):
			result[path] = file
		case !runs && ships: // removed by hand
			delete(result, path)
		}
	}
	return result, nil
}
