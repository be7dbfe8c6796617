// Package hostdir makes a directory that is a booted ostree host as far as pivot
// can see: a sysroot that the real ostree made, the deployment that "runs" with
// /run, /proc and /sys of its own, and a stand-in for "ostree admin" at the
// process boundary. What the real ostree does only on a booted machine (staging
// and its finalization) the stand-in keeps as the staged state and carries out
// with the real "ostree admin deploy". Tests can cut the power at any call.
package hostdir

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/need"
	"machine-pivot/test/oscontainer"
	"machine-pivot/test/registry"
	"machine-pivot/test/rpmostree"
)

// Host is such a host, with a registry that serves its next system.
type Host struct {
	*host.Host
	Registry *registry.Registry
	Image    string        // of the next system, by digest
	Commit   string        // of the next system
	Archive  string        // the repository that it is in
	Reboots  int           // asked for so far
	Kexecs   []host.Kernel // the kernels of those that were asked for without the firmware
	Ostree   Standin

	t         testing.TB
	made      systems
	physical  string
	boots     int
	rpmOstree bool
}

// New makes a host that has booted its first system. It skips, or on CI fails,
// where the real ostree cannot be used.
func New(t testing.TB) *Host {
	t.Helper()
	need.Ostree(t)
	made, err := madeSystems()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h := &Host{t: t, made: made, physical: filepath.Join(dir, sysrootDir), Archive: filepath.Join(dir, archiveDir), Commit: made.next}
	h.Ostree.host = h
	h.must(made.unpack(dir))
	t.Cleanup(func() { h.must(mutableAll(h.physical)) })
	h.serve()
	h.Boot()
	h.Write("/etc/containers/certs.d/"+h.Registry.Host()+"/ca.crt", h.Registry.CA())
	h.Write("/var/lib/kubelet/config.json", h.Registry.PullSecret(h.Registry.Host()))
	return h
}

// ExtendNext puts files, whose content does not matter, into the next system. The
// images that the registry has stay without them.
func (h *Host) ExtendNext(files ...string) {
	h.t.Helper()
	contents := map[string]string{}
	for _, name := range files {
		contents[name] = ""
	}
	h.PutIntoNext(contents)
}

// PutIntoNext is ExtendNext for files with contents, by their paths.
func (h *Host) PutIntoNext(files map[string]string) {
	h.t.Helper()
	tree := h.t.TempDir()
	for name, content := range files {
		writeFile(h.t, filepath.Join(tree, name), []byte(content))
	}
	h.putTree(tree)
}

// LinkIntoNext is PutIntoNext for symbolic links, with what they point at by their paths.
func (h *Host) LinkIntoNext(links map[string]string) {
	h.t.Helper()
	tree := h.t.TempDir()
	for name, target := range links {
		name = filepath.Join(tree, name)
		h.must(os.MkdirAll(filepath.Dir(name), 0o755))
		h.must(os.Symlink(target, name))
	}
	h.putTree(tree)
}

// putTree puts a directory tree into the next system.
func (h *Host) putTree(tree string) {
	h.t.Helper()
	h.Commit = h.run("ostree", "commit", "--repo="+h.Archive, "--orphan", "--tree=ref="+h.Commit, "--tree=dir="+tree, "--add-metadata-string=version=B.2")
}

// serve starts a registry with the next system in it.
func (h *Host) serve() {
	h.t.Helper()
	r, err := registry.Start(registry.Options{})
	h.must(err)
	h.Registry = r
	h.t.Cleanup(func() { h.must(r.Close()) })
	h.Image = h.pushContent()
}

// pushContent puts a legacy image of the next system into the registry.
func (h *Host) pushContent(options ...oscontainer.Option) (reference string) {
	h.t.Helper()
	img, err := oscontainer.Legacy(h.Archive, h.Commit, "B.2", append(options, oscontainer.WithWorkDir(h.t.TempDir()))...)
	h.must(err)
	digest, err := h.Registry.Push(h.t.Context(), "os/content", "b", img)
	h.must(err)
	return h.Registry.Host() + "/os/content@" + digest
}

// Boot starts the default deployment: what was in /run is gone.
func (h *Host) Boot() {
	h.t.Helper()
	h.BootEntry(0)
}

// BootEntry is Boot into the deployment of another boot entry, as somebody chooses
// it in the boot loader's menu: 0 is the default.
func (h *Host) BootEntry(i int) {
	h.t.Helper()
	all, err := ostree.OpenSysroot(h.physical).Deployments()
	h.must(err)
	root := all[i].Path
	h.boots++
	h.must(mutable(root))
	for _, dir := range []string{"run", "var", "sysroot", "boot"} {
		h.must(os.RemoveAll(filepath.Join(root, dir)))
	}
	h.must(os.Symlink(h.physical, filepath.Join(root, "sysroot")))
	h.must(os.Symlink(filepath.Join(h.physical, "boot"), filepath.Join(root, "boot")))
	h.must(os.Symlink(filepath.Join(h.physical, "ostree/deploy/os/var"), filepath.Join(root, "var")))
	h.Host = host.New(root)
	h.Run = h.runProgram
	h.Reboot = func(context.Context) error { h.Reboots++; return nil }
	h.Kexec = func(_ context.Context, next host.Kernel) error { h.Kexecs = append(h.Kexecs, next); return nil }
	if h.rpmOstree {
		h.Write("/usr/bin/rpm-ostree", nil)
	}
	h.Write("/run/ostree-booted", nil)
	h.Write("/proc/cmdline", []byte("BOOT_IMAGE=/x "+strings.Replace(all[i].Entry.Options, "$ignition_firstboot", "ignition.firstboot", 1)+"\n"))
	h.Write("/proc/sys/kernel/random/boot_id", fmt.Appendf(nil, "boot-%d\n", h.boots))
	h.Write("/proc/filesystems", []byte("nodev\tsysfs\n\text4\n"))
	h.Write("/sys/devices/system/cpu/present", []byte("0-3\n"))
}

// Shutdown is an orderly one, with Boot behind it: what is staged and not locked is
// finalized.
func (h *Host) Shutdown() {
	h.t.Helper()
	_, err := h.Ostree.run(h.t.Context(), "ostree", "admin", "finalize-staged")
	h.must(err)
	h.Boot()
}

// Physical is the root of the file system that holds the deployments.
func (h *Host) Physical() string { return h.physical }

// InstallRpmOstree makes it a host of rpm-ostree: of the stand-in, which is what
// the control file says.
func (h *Host) InstallRpmOstree(c rpmostree.Control) {
	h.t.Helper()
	h.rpmOstree = true
	h.Write("/usr/bin/rpm-ostree", nil)
	h.must(c.Write(h.Root))
}

// RemoveRpmOstree makes it a host without rpm-ostree again.
func (h *Host) RemoveRpmOstree() {
	h.t.Helper()
	h.rpmOstree = false
	h.must(os.Remove(h.Path("/usr/bin/rpm-ostree")))
}

// Lock takes the lock of the sysroot, as another program on the host.
func (h *Host) Lock() (unlock func()) {
	h.t.Helper()
	lock, err := os.OpenFile(filepath.Join(h.physical, "ostree/lock"), os.O_CREATE|os.O_RDWR, 0o600)
	h.must(err)
	h.must(unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	return func() { h.must(lock.Close()) }
}

// ReadOnlyTmp makes the running system's /tmp one that nobody can write to.
func (h *Host) ReadOnlyTmp() {
	h.t.Helper()
	dir := h.Path("/tmp")
	h.must(unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""))
	h.t.Cleanup(func() { h.must(unix.Unmount(dir, unix.MNT_DETACH)) })
}

// RepoConfig sets a key of the repository's configuration, as GROUP.KEY.
func (h *Host) RepoConfig(key, value string) {
	h.t.Helper()
	h.run("ostree", "config", "--repo="+h.repo(), "set", key, value)
}

// SetOrigin replaces the running system's origin.
func (h *Host) SetOrigin(text string) {
	h.t.Helper()
	booted, err := h.Sysroot().Booted()
	h.must(err)
	h.must(os.WriteFile(booted.Path+".origin", []byte(text), 0o644))
}

// PullCommit puts the next system's commit into the host's repository, as an
// import does, and returns it.
func (h *Host) PullCommit() string {
	h.t.Helper()
	if h.Commit == h.made.next {
		h.must(h.made.unpackNext(h.repo()))
	} else {
		h.run("ostree", "pull-local", "--disable-fsync", "--repo="+h.repo(), h.Archive, h.Commit)
	}
	h.setRef("pivot/"+h.Commit, h.Commit)
	return h.Commit
}

func (h *Host) repo() string { return filepath.Join(h.physical, "ostree/repo") }

// setRef makes a ref of the repository name a commit. It is a file, which is written
// without a run of ostree: nearly each host has two.
func (h *Host) setRef(name, commit string) {
	h.t.Helper()
	writeFile(h.t, filepath.Join(h.repo(), "refs/heads", name), []byte(commit+"\n"))
}

// ImageRef sets the ref that says that an image, by its ostree reference, is in
// the repository as the commit.
func (h *Host) ImageRef(reference, commit string) string {
	h.t.Helper()
	ref := rpmostree.ImageRef(reference)
	h.setRef(ref, commit)
	return ref
}

// Refs are the refs of the repository.
func (h *Host) Refs() []string {
	h.t.Helper()
	return strings.Fields(h.run("ostree", "refs", "--repo="+h.repo()))
}

// Layer makes the running system one on which rpm-ostree is to layer packages.
func (h *Host) Layer(packages string) {
	h.t.Helper()
	booted, err := h.Sysroot().Booted()
	h.must(err)
	h.SetOrigin("[origin]\nrefspec=" + booted.Checksum.String() + "\n[packages]\nrequested=" + packages + "\n")
}

// runProgram implements the host's way to run programs.
func (h *Host) runProgram(ctx context.Context, argv ...string) ([]byte, error) {
	if _, played := h.Ostree.Programs[argv[0]]; argv[0] == "rpm-ostree" && !h.rpmOstree && !played {
		return nil, fmt.Errorf("cannot run rpm-ostree: %w", host.ErrNotInstalled)
	}
	if argv[0] != "rpm-ostree" || !h.rpmOstree {
		return h.Ostree.run(ctx, argv...)
	}
	var stdout, stderr bytes.Buffer
	status, err := h.RpmOstree().Main(ctx, argv[1:], &stdout, &stderr)
	switch {
	case err != nil:
		return nil, fmt.Errorf("rpm-ostree: %w", err)
	case status != 0:
		return nil, fmt.Errorf("rpm-ostree: %s (exit status %d)", strings.TrimSpace(stderr.String()), status)
	}
	return stdout.Bytes(), nil
}

// RpmOstree is the stand-in on this host.
func (h *Host) RpmOstree() *rpmostree.Standin {
	return &rpmostree.Standin{Root: h.Root, Ostree: h.Ostree.run, Reboot: func(ctx context.Context) error { return h.Reboot(ctx) }}
}

// Version is that of the running system.
func (h *Host) Version() string {
	text := string(h.Read("/usr/lib/os-release"))
	_, after, _ := strings.Cut(text, "VERSION=")
	version, _, _ := strings.Cut(after, "\n")
	return version
}

// Options is the running system's boot entry.
func (h *Host) Options() string {
	h.t.Helper()
	booted, err := h.Sysroot().Booted()
	h.must(err)
	all, err := h.Sysroot().Deployments()
	h.must(err)
	for _, d := range all {
		if d.ID() == booted.ID() {
			return d.Entry.Options
		}
	}
	h.t.Fatalf("the booted deployment has no boot entry")
	return ""
}

// Write writes a file of the host.
func (h *Host) Write(path string, content []byte) {
	h.t.Helper()
	writeFile(h.t, h.Path(path), content)
}

// Read reads a file of the host; nil if it is not there.
func (h *Host) Read(path string) []byte {
	data, err := os.ReadFile(h.Path(path))
	if err != nil {
		return nil
	}
	return data
}

func (h *Host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// run runs a program and returns what it printed.
func (h *Host) run(argv ...string) string {
	h.t.Helper()
	out, err := run(argv...)
	h.must(err)
	return out
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Undeploy takes the deployment of a boot entry away: 0 is the default.
func (h *Host) Undeploy(entry int) error {
	out, err := exec.Command("ostree", "admin", "undeploy", "--sysroot="+h.physical, strconv.Itoa(entry)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
