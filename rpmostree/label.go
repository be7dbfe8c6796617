package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/hostfiles"
	"machine-pivot/ostree"
)

// labelCommand is what gives the files in the booted deployment's /etc, and the
// directories that are new with them, the labels of its SELinux policy. libostree
// keeps the labels of what it merges.
//
// It must be made before the files are there, and run when they are. seen is the
// path of a file as the program sees it.
func labelCommand(booted ostree.Deployment, files []hostfiles.File, seen func(string) string) ([]string, error) {
	policy, err := policyOf(booted.Path)
	if err != nil {
		return nil, fmt.Errorf("cannot label files: %w", err)
	}
	// -r: the names that the policy knows begin below the deployment.
	argv := []string{"setfiles", "-F", "-r", seen(booted.Path), seen(contextsOf(booted.Path, policy))}
	var named []string
	for _, f := range files {
		top, err := topmostNew(booted.Path, f.Path)
		if err != nil {
			return nil, fmt.Errorf("cannot label files: %w", err)
		}
		// The file by itself, too: setfiles goes down to no other device, which is what
		// an overlay's files and directories are to each other.
		for _, path := range []string{top, f.Path} {
			named = append(named, seen(filepath.Join(booted.Path, path)))
		}
	}
	slices.Sort(named)
	return append(argv, slices.Compact(named)...), nil
}

// contextsOf is where a policy says which file has which label.
func contextsOf(root, policy string) string {
	return filepath.Join(root, "etc/selinux", policy, "contexts/files/file_contexts")
}

// topmostNew is the highest directory above the file that is not there yet, or the file.
func topmostNew(root, file string) (string, error) {
	for top := file; ; top = path.Dir(top) {
		parent := path.Dir(top)
		_, err := os.Lstat(filepath.Join(root, parent))
		switch {
		case err == nil:
			return top, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
	}
}

// policyOf is the name of the deployment's SELinux policy.
func policyOf(root string) (string, error) {
	name, err := selinuxConfig(root, "SELINUXTYPE")
	if err == nil && name == "" {
		err = errors.New("/etc/selinux/config names no SELINUXTYPE")
	}
	return name, err
}

// selinuxConfig is a setting in the deployment's /etc/selinux/config
// (selinux_config(5)); "" if it is not set there.
func selinuxConfig(root, key string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "etc/selinux/config"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}

// labelling is the command for a running system; nil where its kernel has no policy.
func (e *Ostree) labelling(booted ostree.Deployment, files []hostfiles.File) ([]string, error) {
	if _, err := os.Stat(filepath.Join(e.Sysroot.Root(), "sys/fs/selinux/enforce")); err != nil || len(files) == 0 {
		return nil, nil
	}
	return labelCommand(booted, files, func(path string) string { return path })
}

// label runs the command, if there is one.
func (e *Ostree) label(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return nil
	}
	if _, err := e.Run(ctx, command...); err != nil {
		return fmt.Errorf("cannot label files: %w", err)
	}
	return nil
}
