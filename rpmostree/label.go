package rpmostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/sepolicy"
	"machine-pivot/pivot"
)

// nextSELinux returns the SELinux configuration that a deployment of commit will have after
// libostree's merge: changes in the booted /etc override what the commit has.
func (e *Ostree) nextSELinux(booted ostree.Deployment, commit ostree.Checksum) (sepolicy.Files, error) {
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return nil, err
	}
	const dir = "etc/selinux"
	now, before := sepolicy.In(filepath.Join(booted.Path, dir)), sepolicy.In(filepath.Join(booted.Path, "usr", dir))
	next := func(name string) ([]byte, error) { return repo.ReadFile(commit, path.Join("usr", dir, name)) }
	return func(name string) ([]byte, error) {
		return ostree.MergeFile(name, ostree.ReadFile(now), ostree.ReadFile(before), next)
	}, nil
}

// labelled is a file with its wanted label.
type labelled struct{ path, label string }

// labels returns the labels that the policy of a deployment of commit has for files in /etc and
// for the directories that are created for them. It returns none if the deployment will not run
// with SELinux, or if the running kernel has no policy. libostree keeps the labels of the files
// that it merges.
//
// It must be called before the files are created, as it looks for missing directories.
func (e *Ostree) labels(booted ostree.Deployment, commit ostree.Checksum, files []hostfiles.File) ([]labelled, error) {
	if !e.kernel().Loaded() || len(files) == 0 {
		return nil, nil
	}
	next, err := e.nextSELinux(booted, commit)
	if err != nil {
		return nil, err
	}
	config, err := next.Config()
	if err != nil || !config.On() {
		return nil, err
	}
	contexts, err := next.Contexts(config.Policy)
	if err != nil {
		return nil, fmt.Errorf("cannot label files: %w", err)
	}
	var all []labelled
	for _, f := range files {
		onDisk := f.OnDisk()
		if f.Removes() && onDisk == f.Path { // what remains keeps the image's label
			continue
		}
		made, err := madeFor(booted.Path, onDisk)
		if err != nil {
			return nil, fmt.Errorf("cannot label files: %w", err)
		}
		for _, name := range made {
			mode := fs.ModeDir
			if name == onDisk {
				mode = f.Kind.Type()
			}
			label, known, err := contexts.Label(name, mode)
			if err != nil {
				return nil, fmt.Errorf("cannot label files: %w", err)
			}
			if l := (labelled{name, label}); known && !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	return all, nil
}

// kernel returns the SELinux state of the running kernel.
func (e *Ostree) kernel() hostfiles.RunningPolicy { return hostfiles.RunningPolicyIn(e.Sysroot.Root()) }

// checkLabels returns an error if this process cannot set a label that the commit will need.
func (e *Ostree) checkLabels(booted ostree.Deployment, staged *ostree.Staged, r pivot.Spec) error {
	labels, err := e.labels(booted, staged.Target.Checksum, r.Entries)
	if err != nil {
		return err
	}
	for _, l := range labels {
		if err := e.kernel().Check(l.label); err != nil {
			return fault.New(fault.Refused, "cannot give %s the label %s of the new system: %w", l.path, l.label, err).
				WithHint(hostfiles.UnknownLabelHint)
		}
	}
	return nil
}

// byPolicy splits labels into those that the running policy knows and the others.
func (e *Ostree) byPolicy(labels []labelled) (known, unknown []labelled) {
	for _, l := range labels {
		if e.kernel().Knows(l.label) {
			known = append(known, l)
		} else {
			unknown = append(unknown, l)
		}
	}
	return known, unknown
}

// labelLate sets labels that the running policy does not know, in the deployment that was just
// finalized. It runs in a private mount namespace. Before the merge the files are in a tmpfs, for
// which a policy may forbid such labels although it allows them on disk. After a power cut right
// before this, the files have the labels of their directories.
func (e *Ostree) labelLate(staged *ostree.Staged, labels []labelled) error {
	if len(labels) == 0 {
		return nil
	}
	next, err := e.Sysroot.Deployment(staged.Target)
	if err != nil {
		return err
	}
	if err := hostfiles.RemountWritable(e.Sysroot.Physical()); err != nil {
		return err
	}
	if err := applyLabels(next.Path, labels); err != nil {
		return err
	}
	return hostfiles.OS{}.SyncAll(next.Path)
}

// applyLabels sets the labels of files below root.
func applyLabels(root string, labels []labelled) error {
	for _, l := range labels {
		if err := hostfiles.SetLabel(filepath.Join(root, l.path), l.label); err != nil {
			return err
		}
	}
	return nil
}

// readLabels returns an error if a file below root has another label than wanted.
func readLabels(root string, labels []labelled) error {
	for _, l := range labels {
		if err := hostfiles.CheckLabel(filepath.Join(root, l.path), l.label); err != nil {
			return fmt.Errorf("cannot trust the new deployment: %w", err)
		}
	}
	return nil
}

// madeFor returns file and the directories above it that are missing, or are something else, bottom-up.
func madeFor(root, file string) ([]string, error) {
	made := []string{file}
	for dir := path.Dir(file); ; dir = path.Dir(dir) {
		info, err := os.Lstat(filepath.Join(root, dir))
		switch {
		case err == nil && info.IsDir():
			return made, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
			return nil, err
		}
		made = append(made, dir)
	}
}
