package rpmostree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/ostree/gvariant"
)

// The first releases that lock with a key in the staged state instead of a file: of rpm-ostree
// (commit 37c7228d) and of libostree.
var (
	lockInState       = release{2024, 6}
	ostreeLockInState = release{2023, 8}
)

// pending returns the deployment that an operation starts from, with its packages, origin and arguments. It is the
// first of the booted stateroot in boot order, a staged one before all others, whatever is booted
// (rpmostree_syscore_get_origin_merge_deployment). Only /etc is the booted one's.
func (c *call) pending() (deployment, error) {
	all, err := c.deployments()
	if err != nil {
		return deployment{}, err
	}
	booted, err := c.sysroot().Booted()
	if err != nil {
		return deployment{}, err
	}
	for _, d := range all {
		if d.OSName == booted.Stateroot {
			return d, nil
		}
	}
	return deployment{}, failf("No previous deployment for OS '%s'", booted.Stateroot)
}

// stage lets libostree stage a deployment of commit. It replaces a staged deployment.
func (c *call) stage(stateroot, commit string, origin ostree.Origin, kargs []string) error {
	lock, err := c.lockBefore()
	if err != nil {
		return err
	}
	if err := c.fault("locked"); err != nil {
		return err
	}
	file, err := os.CreateTemp("/run", "rpm-ostree-origin-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.Write(origin.Bytes()); err != nil {
		return err
	}
	argv := append([]string{"ostree", "admin", "deploy", "--stage", "--os=" + stateroot,
		"--origin-file=" + file.Name(), "--karg-none"}, lock...)
	for _, arg := range kargs {
		if !strings.HasPrefix(arg, "ostree=") {
			argv = append(argv, "--karg-append="+arg)
		}
	}
	overlay, err := c.overlay(origin)
	if err != nil {
		return err
	}
	argv = append(argv, overlay...)
	fmt.Fprint(c.stdout, "Staging deployment... ")
	if _, err := c.Ostree(c.ctx, append(argv, commit)...); err != nil {
		return err
	}
	if err := c.lockAfter(len(lock) > 0); err != nil {
		return err
	}
	fmt.Fprintln(c.stdout, "done")
	if err := c.collect(); err != nil {
		return err
	}
	return c.fault("staged")
}

// overlay returns the option for a second initramfs, of the files of the booted /etc that an origin names
// (rust/src/initramfs.rs). Unlike the real one it is no archive, and a missing file is no error.
func (c *call) overlay(origin ostree.Origin) (options []string, err error) {
	names := layersOf(origin).other("rpmostree", "initramfs-etc")
	if names == "" {
		return nil, nil
	}
	text := ""
	for name := range strings.SplitSeq(strings.TrimSuffix(names, ";"), ";") {
		content, err := os.ReadFile(filepath.Join(c.Root, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		text += name + "\n" + string(content)
	}
	file := runFile(c.Root, "initramfs-etc")
	return []string{"--overlay-initrd=" + file}, writeFile(file, 0o644, strings.NewReader(text))
}

// lockBefore locks what is staged next: old releases use the file, which only finalize-deployment
// removes again, others the returned option.
func (c *call) lockBefore() (options []string, err error) {
	if !c.options.has("lock-finalization") {
		return nil, nil
	}
	if !c.control.release().since(lockInState) {
		dir := c.sysroot().RunDir()
		return nil, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, ostree.LockFile), nil, 0o600))
	}
	out, err := c.Ostree(c.ctx, "ostree", "--version")
	if err != nil {
		return nil, err
	}
	_, text, _ := strings.Cut(string(out), "Version: '")
	text, _, _ = strings.Cut(text, "'")
	if parseRelease(text).since(ostreeLockInState) {
		return []string{"--lock-finalization"}, nil
	}
	return nil, nil
}

// lockAfter leaves only the form of the lock that the release has. libostree's command line also
// writes the file; the real rpm-ostree, which uses the library, does not. If libostree is too old
// for the lock in the staged state, which then has no effect, lockAfter adds it: the simulated
// release would run on a newer libostree. done says that libostree has set the lock.
func (c *call) lockAfter(done bool) error {
	if !c.options.has("lock-finalization") || !c.control.release().since(lockInState) {
		return nil
	}
	dir := c.sysroot().RunDir()
	if done {
		if err := os.Remove(filepath.Join(dir, ostree.LockFile)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	file := filepath.Join(dir, ostree.StagedFile)
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	value, err := gvariant.Decode("a{sv}", data)
	if err != nil {
		return err
	}
	locked := gvariant.Tuple{"locked", gvariant.Variant{Type: "b", Value: true}}
	if data, err = gvariant.Encode("a{sv}", append(value.([]any), locked)); err != nil {
		return err
	}
	return replaceFile(file, data)
}

// lockFree returns the daemon's error if another process holds the sysroot's lock.
func (c *call) lockFree() error {
	f, err := os.OpenFile(filepath.Join(c.sysroot().Physical(), "ostree/lock"), os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return err
	}
	if lock.Type != unix.F_UNLCK {
		return failf("System transaction in progress")
	}
	return nil
}

// collect removes the refs of images that no deployment's origin names, as each operation finally
// does (rpmostree-sysroot-core.cxx, syscore_cleanup).
func (c *call) collect() error {
	all, err := c.deployments()
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, d := range all {
		if d.Container != "" {
			keep[ImageRef(d.Container)] = true
		}
	}
	refs, err := c.Ostree(c.ctx, "ostree", "refs", "--repo="+c.repo(), "--list", "ostree/container/image")
	if err != nil {
		return err
	}
	for ref := range bytes.Lines(refs) {
		name := strings.TrimSpace(string(ref))
		if keep[name] {
			continue
		}
		err := c.writing(func(repo string) error {
			_, err := c.Ostree(c.ctx, "ostree", "refs", "--repo="+repo, "--delete", name)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writing calls work with a writable path to the repository, even if /sysroot is mounted
// read-only.
func (c *call) writing(work func(repo string) error) error {
	dir, err := hostfiles.OpenWritable(c.sysroot().Physical(), c.repo())
	if err != nil {
		return err
	}
	defer dir.Close()
	return work(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), dir.Fd()))
}

// replaceFile replaces a file as libostree does: a reader finds the old one or the new.
func replaceFile(file string, data []byte) error {
	next := file + ".new"
	return errors.Join(os.WriteFile(next, data, 0o644), os.Rename(next, file))
}
