package rpmostree

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// Keys of a boot entry that libostree does not write are others'. They say which kernel arguments belong to whom, or
// whether GRUB asks for a password (grub_users, grub_arg --unrestricted). The rule: the next boot's entry has those of
// the running system's, and none that libostree gives to entries which are not the default (Repo.AppendedKeys).
// libostree keeps the keys of existing entries, also the latter in one that becomes the default. In a new entry it has
// none of them, except that since 2026.1 it takes those of a staged deployment from the staged state.

// entryOf returns the boot entry of a deployment.
func (e *Ostree) entryOf(d ostree.Deployment) (ostree.BootEntry, error) {
	all, err := e.Sysroot.Deployments()
	if i := indexOf(all, d); err == nil && i >= 0 {
		return all[i].Entry, nil
	}
	return ostree.BootEntry{}, err
}

// keysOf returns the keys of a deployment's boot entry that another one gets, too.
func (e *Ostree) keysOf(d ostree.Deployment) ([]ostree.Key, error) {
	entry, err := e.entryOf(d)
	if err != nil {
		return nil, err
	}
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return nil, err
	}
	appended := repo.AppendedKeys()
	return slices.DeleteFunc(entry.ForeignKeys(), func(k ostree.Key) bool { return slices.Contains(appended, k) }), nil
}

// addKeys adds keys to the boot entry of a deployment that lacks them.
func (e *Ostree) addKeys(to ostree.Deployment, keys []ostree.Key) error {
	entry, err := e.entryOf(to)
	if err != nil {
		return err
	}
	has := func(k ostree.Key) bool { return slices.Contains(entry.ForeignKeys(), k) }
	lacking := slices.DeleteFunc(slices.Clone(keys), has)
	if len(lacking) == 0 {
		return nil
	}
	return e.editEntry(entry, func(text string) string {
		text = strings.TrimRight(text, "\n") + "\n"
		for _, k := range lacking {
			text += k.Name + " " + k.Value + "\n"
		}
		return text
	})
}

// editEntry replaces the text of a boot entry, if it changes.
func (e *Ostree) editEntry(entry ostree.BootEntry, edit func(text string) string) error {
	dir, err := hostfiles.OpenWritable(filepath.Join(e.Sysroot.Root(), "boot"), filepath.Join(e.Sysroot.Root(), "boot/loader/entries"))
	if err != nil {
		return fmt.Errorf("cannot change boot entry %s: %w", entry.File, err)
	}
	defer dir.Close()
	file := filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), entry.File)
	text, err := os.ReadFile(file)
	if changed := edit(string(text)); err == nil && changed != string(text) {
		err = hostfiles.Replace(hostfiles.OS{}, file, []byte(changed), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot change boot entry %s: %w", entry.File, err)
	}
	return nil
}

// Startable removes from a deployment's boot entry what libostree has added because it was not the default, such as that
// GRUB asks for a password before it starts the entry. It is for an entry that is about to be started, once or as the
// default. undo puts it back.
func (e Default) Startable(to ostree.DeploymentRef) (undo func() error, err error) {
	nothing := func() error { return nil }
	plain := &Ostree{Sysroot: e.Sysroot, Run: e.Run}
	entry, err := plain.entryOf(ostree.Deployment{DeploymentRef: to})
	if err != nil || len(entry.Others) == 0 {
		return nothing, err
	}
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return nothing, err
	}
	appended := repo.AppendedKeys()
	if !slices.ContainsFunc(entry.Others, func(k ostree.Key) bool { return slices.Contains(appended, k) }) {
		return nothing, nil
	}
	var before string
	err = plain.editEntry(entry, func(text string) string {
		before = text
		return ostree.WithoutKeys(text, appended)
	})
	return func() error { return plain.editEntry(entry, func(string) string { return before }) }, err
}
