package rehearse

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// root is where the new system's root directory is made, in the namespace. Each host has this directory.
const root = "/run"

// without are the directories that no program needs to start. They have most of the files.
var without = []string{"usr/share", "usr/lib/firmware", "usr/lib/debug", "usr/include", "usr/src"}

// modules has a directory for each kernel, of which only the files are needed: the tables of modules.
const modules = "usr/lib/modules"

// Build makes the root directory of a commit, read-only, and returns its path. It needs a mount namespace of its own.
// The working directory is the repository's from then on.
func Build(repo string, commit ostree.Checksum) (string, error) {
	return root, asked{Repo: repo, Commit: commit}.build()
}

func (a asked) build() error {
	if err := os.Chdir(a.Repo); err != nil { // where it is found whatever is mounted
		return err
	}
	repo, err := ostree.OpenRepo(".")
	if err == nil {
		err = build(repo, a.Commit, a.Files)
	}
	return err
}

// build makes the root directory of a commit: directories and links in memory, and each file bound to its object in the
// repository. So nothing is written to a disk, nothing can stay behind, and the files have their attributes and labels.
func build(repo *ostree.Repo, commit ostree.Checksum, files map[string]File) error {
	err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755")
	if err == nil {
		err = protectObjects()
	}
	if err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	tree, err := repo.DirTree(commit, ".")
	if err == nil {
		err = copyTop(repo, tree)
	}
	if err == nil {
		err = mountOthers()
	}
	if err == nil {
		err = writeFiles(files)
	}
	if err == nil {
		err = unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
	}
	return err
}

// writeFiles writes files into the tree. Its own links lead nowhere outside. A file of the image at such a path is a
// mount.
func writeFiles(files map[string]File) error {
	tree, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer tree.Close()
	for name, file := range files {
		if at, err := hostfiles.ResolveIn(root, "/"+name); err == nil {
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
		err := tree.MkdirAll(path.Dir(name), 0o755)
		if err == nil {
			err = tree.WriteFile(name, file.Content, 0o600)
		}
		if err == nil {
			err = errors.Join(tree.Chown(name, nobody, file.GID), tree.Chmod(name, os.FileMode(file.Mode)))
		}
		if err != nil && !strings.HasPrefix(name, "run/") {
			continue // as where a directory is a link: what is asked about it is not judged
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// protectObjects makes the objects read-only. What is bound from a mount has its flags.
func protectObjects() error {
	if err := unix.Mount("objects", "objects", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", "objects", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// copyTop makes the directories at the top, with the content of /usr, and /etc as the image has it.
func copyTop(repo *ostree.Repo, tree ostree.Checksum) error {
	top, err := repo.ReadDirectory(tree)
	if err != nil {
		return err
	}
	own := []string{"dev", "etc", "proc", "run", "sys", "tmp", "var"}
	for _, name := range own {
		delete(top.Files, name)
		delete(top.Dirs, name)
		if name != "etc" {
			err = errors.Join(err, os.Mkdir(path.Join(root, name), 0o755))
		}
	}
	if err == nil {
		err = os.Symlink("usr/etc", path.Join(root, "etc"))
	}
	if err == nil {
		err = copyFiles(repo, top, "")
	}
	if usr, ok := top.Dirs["usr"]; ok && err == nil {
		err = copyTree(repo, usr.Tree, "usr")
	}
	return err
}

func copyTree(repo *ostree.Repo, tree ostree.Checksum, at string) error {
	d, err := repo.ReadDirectory(tree)
	if err != nil {
		return err
	}
	if err := os.Mkdir(path.Join(root, at), 0o755); err != nil {
		return err
	}
	for name, below := range d.Dirs {
		if at := path.Join(at, name); !slices.Contains(without, at) && path.Dir(path.Dir(at)) != modules {
			if err := copyTree(repo, below.Tree, at); err != nil {
				return err
			}
		}
	}
	return copyFiles(repo, d, at)
}

func copyFiles(repo *ostree.Repo, d *ostree.Directory, at string) error {
	for name, file := range d.Files {
		object, to := repo.FileObject(file), path.Join(root, at, name)
		if target, err := os.Readlink(object); err == nil {
			if err := os.Symlink(target, to); err != nil {
				return err
			}
			continue
		}
		if err := bindFile(object, to); err != nil {
			return fmt.Errorf("cannot show /%s: %w", path.Join(at, name), err)
		}
	}
	return nil
}

func bindFile(from, to string) error {
	if err := unix.Mknod(to, unix.S_IFREG|0o444, 0); err != nil {
		return err
	}
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

// mountOthers mounts what a system has besides its files. Of the devices there are those
// that hold nothing.
func mountOthers() error {
	for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := bindFile(path.Join("/dev", device), path.Join(root, "dev", device)); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, dir := range []string{"tmp", "run"} {
		if err := unix.Mount("tmpfs", path.Join(root, dir), "tmpfs", flags, "mode=1777,size="+maxFiles); err != nil {
			return fmt.Errorf("cannot mount: %w", err)
		}
	}
	if err := unix.Mount("proc", path.Join(root, "proc"), "proc", flags, ""); err != nil {
		return fmt.Errorf("cannot mount /proc: %w", err)
	}
	return showDevices(path.Join(root, "sys"), flags)
}

// showDevices shows the host's /sys, where udev finds devices. A new mount of it would have no network interfaces.
func showDevices(at string, flags uintptr) error {
	err := unix.Mount("/sys", at, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, "")
	}
	if err != nil {
		return fmt.Errorf("cannot show /sys: %w", err)
	}
	return nil
}
