package hostdir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"machine-pivot/test/worlds/rpmostree"

	"golang.org/x/sys/unix"
)

// firstStateroot is the stateroot of a new host.
const firstStateroot = "os"

// systems is a sysroot made by the real ostree, with the first system deployed, and an archive
// repository with the next system. It is kept as a tarball, from which each host unpacks its own
// copy.
type systems struct {
	tarball []byte
	next    string // commit in the archive
	bare    []byte // tarball of a bare repository with the commit
}

// The directories in the tarball.
const (
	sysrootDir = "physical"
	archiveDir = "archive"
)

// madeSystems makes the systems once per process, because it runs ostree a dozen times.
var madeSystems = sync.OnceValues(makeSystems)

func makeSystems() (s systems, err error) {
	dir, err := os.MkdirTemp("", "hostdir-*")
	if err != nil {
		return s, fmt.Errorf("cannot make systems: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := makeSysroot(dir, filepath.Join(dir, sysrootDir)); err != nil {
		return s, fmt.Errorf("cannot make a sysroot: %w", err)
	}
	archive := filepath.Join(dir, archiveDir)
	if _, err := run("ostree", "init", "--repo="+archive, "--mode=archive"); err != nil {
		return s, fmt.Errorf("cannot make an archive: %w", err)
	}
	if s.next, err = commit(dir, archive, "B.2"); err != nil {
		return s, err
	}
	if s.tarball, err = pack(dir, sysrootDir, archiveDir); err != nil {
		return s, err
	}
	bare := filepath.Join(dir, "bare")
	if err := makeBare(bare, archive, s.next); err != nil {
		return s, fmt.Errorf("cannot make a bare repository: %w", err)
	}
	s.bare, err = pack(bare, ".")
	return s, err
}

// unpack unpacks the sysroot and the archive into a directory.
func (s systems) unpack(dir string) error { return unpack(s.tarball, dir) }

// unpackBare creates a bare repository with the next system.
func (s systems) unpackBare(repo string) error {
	if err := os.Mkdir(repo, 0o755); err != nil {
		return err
	}
	return unpack(s.bare, repo)
}

// unpackNext adds the objects of the next system to an existing bare repository.
func (s systems) unpackNext(repo string) error {
	return unpack(s.bare, repo, "--skip-old-files", "./objects")
}

// pack returns a tarball of files in a directory.
func pack(dir string, names ...string) ([]byte, error) {
	tarball, err := exec.Command("tar", append([]string{"-C", dir, "--numeric-owner", "-cf", "-"}, names...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("cannot pack systems: %w", err)
	}
	return tarball, nil
}

func unpack(tarball []byte, dir string, args ...string) error {
	cmd := exec.Command("tar", append([]string{"-C", dir, "--numeric-owner", "-xpf", "-"}, args...)...)
	cmd.Stdin = bytes.NewReader(tarball)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot unpack systems: %w\n%s", err, out)
	}
	return nil
}

// makeBare creates a bare repository with a commit from another repository.
func makeBare(repo, from, commit string) error {
	if _, err := run("ostree", "init", "--repo="+repo, "--mode=bare"); err != nil {
		return err
	}
	_, err := run("ostree", "pull-local", "--repo="+repo, from, commit)
	return err
}

// makeSysroot creates a sysroot with the first system deployed. dir is a working directory.
func makeSysroot(dir, physical string) error {
	repo := filepath.Join(physical, "ostree/repo")
	if err := os.Mkdir(physical, 0o755); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"ostree", "admin", "init-fs", physical},
		{"ostree", "admin", "os-init", "--sysroot=" + physical, firstStateroot},
		{"ostree", "config", "--repo=" + repo, "set", "sysroot.bootloader", "none"},
	} {
		if _, err := run(argv...); err != nil {
			return err
		}
	}
	first, err := commit(dir, repo, "A.1")
	if err != nil {
		return err
	}
	if _, err := run("ostree", "admin", "deploy", "--sysroot="+physical, "--os="+firstStateroot, "--karg=root=LABEL=root", "--karg=rw",
		`--karg-append=keep="a b"`, "--karg-append=$ignition_firstboot", first); err != nil {
		return err
	}
	// The immutable flag would prevent removal. Each host removes the flag from what it boots.
	return mutableAll(physical)
}

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// mutable removes the immutable flag, which ostree sets, from a deployment.
func mutable(deployment string) (err error) {
	dir, err := os.Open(deployment)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	flags, err := unix.IoctlGetInt(int(dir.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil && flags&immutable != 0 {
		err = unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, flags&^immutable)
	}
	if err != nil {
		return fmt.Errorf("cannot make %s mutable: %w", deployment, err)
	}
	return nil
}

// mutableAll removes the immutable flag from all deployments of a sysroot, so that they can be
// removed.
func mutableAll(physical string) error {
	all, err := filepath.Glob(filepath.Join(physical, "ostree/deploy/*/deploy/*.*[0-9]"))
	for _, deployment := range all {
		err = errors.Join(err, mutable(deployment))
	}
	return err
}

// commit builds a small system with a version, in a directory below dir, and commits it.
func commit(dir, repo, version string) (string, error) {
	tree := filepath.Join(dir, "tree-"+version)
	for path, content := range map[string]string{
		"usr/lib/modules/6.1/vmlinuz": "kernel", "usr/lib/modules/6.1/initramfs.img": "initramfs " + version,
		"usr/lib/os-release": "ID=os\nVERSION=" + version + "\nPRETTY_NAME=" + version + "\n",
		"usr/etc/default":    "default of " + version + "\n",
		rpmostree.DatabasePath: string(rpmostree.Database("6.1", map[string][]string{
			"kernel": nil, "kernel-core": {"/usr/lib/modules/6.1"}, "kernel-modules": nil,
		})),
	} {
		path = filepath.Join(tree, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			return "", fmt.Errorf("cannot make system %s: %w", version, err)
		}
	}
	for _, dir := range []string{"boot", "dev", "proc", "run", "sys", "sysroot", "tmp", "var"} {
		if err := os.Mkdir(filepath.Join(tree, dir), 0o755); err != nil {
			return "", fmt.Errorf("cannot make system %s: %w", version, err)
		}
	}
	for link, to := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "ostree": "sysroot/ostree"} {
		if err := os.Symlink(to, filepath.Join(tree, link)); err != nil {
			return "", fmt.Errorf("cannot make system %s: %w", version, err)
		}
	}
	return run("ostree", "commit", "--repo="+repo, "--orphan", "--tree=dir="+tree, "--add-metadata-string=version="+version)
}

// run runs a program and returns its output.
func run(argv ...string) (string, error) {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
