// Package hostdir creates a directory that looks to pivot like a booted ostree host. It has a sysroot made by the real
// ostree, a "running" deployment with its own /run, /proc and /sys, and a stand-in for "ostree admin". What ostree does
// only on a booted machine, staging and finalization, the stand-in records as the staged state and carries out with the
// real "ostree admin deploy". Tests can fail it at any call.
package hostdir

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
	"machine-pivot/test/worlds/rpmostree"
)

// Host is such a host, with a registry that serves the next system.
type Host struct {
	*host.Host
	Registry *registry.Registry
	Image    string        // reference of the next system, by digest
	Commit   string        // of the next system
	Archive  string        // repository with the next system
	Reboots  int           // number of reboots requested
	Kexecs   []host.Kernel // the kernels of the requested kexec reboots
	Ostree   Standin

	t         testing.TB
	made      systems
	physical  string
	stateroot string
	prefixed  bool // boot entries have paths below /boot
	boots     int
	soft      uint32 // soft reboots since the last boot
	rpmOstree bool
	daemon    *rpmostree.Daemon // of rpm-ostree
}

// New returns a host that has booted the first system. Where the real ostree cannot be used, it
// skips the test, or fails it on CI. A short run has a third of these tests (sample.World).
func New(t testing.TB) *Host {
	t.Helper()
	sample.World(t)
	need.Ostree(t)
	made, err := madeSystems()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h := &Host{t: t, made: made, physical: filepath.Join(dir, sysrootDir), stateroot: firstStateroot, Archive: filepath.Join(dir, archiveDir), Commit: made.next}
	h.Ostree.host = h
	h.must(made.unpack(dir))
	t.Cleanup(func() { h.must(mutableAll(h.physical)) })
	t.Cleanup(h.stopDaemon)
	h.serve()
	h.Boot()
	h.trust()
	return h
}

// trust lets the running system trust the registry and log in to it.
func (h *Host) trust() {
	h.t.Helper()
	h.Write("/etc/containers/certs.d/"+h.Registry.Host()+"/ca.crt", h.Registry.CA())
	h.Write("/var/lib/kubelet/config.json", h.Registry.PullSecret(h.Registry.Host()))
}

// ExtendNext adds empty files to the next system. Images already in the registry do not change.
func (h *Host) ExtendNext(files ...string) {
	h.t.Helper()
	contents := map[string]string{}
	for _, name := range files {
		contents[name] = ""
	}
	h.PutIntoNext(contents)
}

// PutIntoNext is ExtendNext for files with contents, by path.
func (h *Host) PutIntoNext(files map[string]string) {
	h.t.Helper()
	tree := h.t.TempDir()
	for name, content := range files {
		writeFile(h.t, filepath.Join(tree, name), []byte(content))
	}
	h.putTree(tree)
}

// ProgramIntoNext puts a program of this host into the next system.
func (h *Host) ProgramIntoNext(name, program string) {
	h.t.Helper()
	content, err := os.ReadFile(program)
	h.must(err)
	tree := h.t.TempDir()
	name = filepath.Join(tree, name)
	writeFile(h.t, name, content)
	h.must(os.Chmod(name, 0o755))
	h.putTree(tree)
}

// LinkIntoNext is PutIntoNext for symbolic links: targets by path.
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

// putTree adds a directory tree to the next system.
func (h *Host) putTree(tree string) {
	h.t.Helper()
	h.Commit = h.run("ostree", "commit", "--repo="+h.Archive, "--orphan", "--tree=ref="+h.Commit, "--tree=dir="+tree, "--add-metadata-string=version=B.2")
}

// serve starts a registry that has the next system.
func (h *Host) serve() {
	h.t.Helper()
	r, err := registry.Start(registry.Options{})
	h.must(err)
	h.Registry = r
	h.t.Cleanup(func() { h.must(r.Close()) })
	h.Image = h.pushContent()
}

// pushContent pushes a legacy image of the next system.
func (h *Host) pushContent(options ...oscontainer.Option) (reference string) {
	h.t.Helper()
	img, err := oscontainer.Legacy(h.Archive, h.Commit, "B.2", append(options, oscontainer.WithWorkDir(h.t.TempDir()))...)
	h.must(err)
	digest, err := h.Registry.Push(h.t.Context(), "os/content", "b", img)
	h.must(err)
	return h.Registry.Host() + "/os/content@" + digest
}

// Boot boots the default deployment. The old contents of /run are lost.
func (h *Host) Boot() {
	h.t.Helper()
	h.BootEntry(0)
}

// BootEntry boots the deployment of the ith boot entry, like a selection in the boot menu. 0 is the
// default.
func (h *Host) BootEntry(i int) {
	h.t.Helper()
	all, err := ostree.OpenSysroot(h.physical).Deployments()
	h.must(err)
	root := all[i].Path
	h.boots++
	h.soft = 0
	h.must(mutable(root))
	h.must(os.RemoveAll(filepath.Join(root, "run")))
	h.start(root)
	h.Write("/proc/cmdline", []byte("BOOT_IMAGE=/x "+strings.Replace(all[i].Entry.Options, "$ignition_firstboot", "ignition.firstboot", 1)+"\n"))
}

// threadRoot is the root directory of the thread that follows this link, in its mount namespace. What is a mount on a
// real host is a link here, and must lead out of the host's root, wherever the test's directory is. hostfiles.Locate
// follows a link out of a root only into what the kernel brings, such as /proc.
const threadRoot = "/proc/thread-self/root"

// start starts the system of the deployment at root.
func (h *Host) start(root string) {
	h.t.Helper()
	for dir, of := range map[string]string{"var": "ostree/deploy/" + h.stateroot + "/var", "sysroot": "", "boot": "boot"} {
		h.must(os.RemoveAll(filepath.Join(root, dir)))
		h.must(os.Symlink(filepath.Join(threadRoot, h.physical, of), filepath.Join(root, dir)))
	}
	h.Host = host.New(root)
	count := h.soft
	h.SoftReboots = func() (uint32, error) { return count, nil }
	h.Run = h.runProgram
	h.Reboot = func(context.Context) error { h.Reboots++; return nil }
	h.Kexec = func(_ context.Context, next host.Kernel) error { h.Kexecs = append(h.Kexecs, next); return nil }
	if h.rpmOstree {
		h.Write("/usr/bin/rpm-ostree", nil)
		h.startDaemon()
	}
	h.Write("/run/ostree-booted", nil)
	h.Write("/proc/sys/kernel/random/boot_id", fmt.Appendf(nil, "boot-%d\n", h.boots))
	h.Write("/proc/filesystems", []byte("nodev\tsysfs\n\text4\n"))
	h.Write("/sys/devices/system/cpu/present", []byte("0-3\n"))
}

// Shutdown is an orderly reboot: the staged deployment is finalized unless it is locked, then Boot. If that fails, the reason is
// left in /boot, as by libostree.
func (h *Host) Shutdown() {
	h.t.Helper()
	if _, err := h.Ostree.run(h.t.Context(), "ostree", "admin", "finalize-staged"); err != nil {
		h.Write("/boot/ostree/finalize-failure.stamp", []byte(err.Error()+"\n"))
	}
	h.Boot()
}

// Physical returns the root directory of the file system that holds the deployments.
func (h *Host) Physical() string { return h.physical }

// InstallRpmOstree installs the stand-in for rpm-ostree, configured by c.
func (h *Host) InstallRpmOstree(c rpmostree.Control) {
	h.t.Helper()
	h.rpmOstree = true
	h.Write("/usr/bin/rpm-ostree", nil)
	h.must(c.Write(h.Root))
	h.startDaemon()
}

// startDaemon starts the daemon of rpm-ostree's stand-in, anew if it runs.
func (h *Host) startDaemon() {
	h.t.Helper()
	h.stopDaemon()
	var err error
	h.daemon, err = h.RpmOstree().StartDaemon()
	h.must(err)
}

func (h *Host) stopDaemon() {
	h.t.Helper()
	if h.daemon != nil {
		h.must(h.daemon.Close())
		h.daemon = nil
	}
}

// RemoveRpmOstree removes the stand-in for rpm-ostree.
func (h *Host) RemoveRpmOstree() {
	h.t.Helper()
	h.rpmOstree = false
	h.stopDaemon()
	h.must(os.Remove(h.Path("/usr/bin/rpm-ostree")))
}

// Lock takes the sysroot lock, like another program on the host.
func (h *Host) Lock() (unlock func()) {
	h.t.Helper()
	lock, err := os.OpenFile(filepath.Join(h.physical, "ostree/lock"), os.O_CREATE|os.O_RDWR, 0o600)
	h.must(err)
	h.must(unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	return func() { h.must(lock.Close()) }
}

// ReadOnlyTmp mounts the running system's /tmp read-only.
func (h *Host) ReadOnlyTmp() {
	h.t.Helper()
	dir := h.Path("/tmp")
	h.must(unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""))
	h.t.Cleanup(func() { h.must(unix.Unmount(dir, unix.MNT_DETACH)) })
}

// RepoConfig sets a key of the repository's configuration, given as GROUP.KEY.
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

// PullCommit pulls the next system's commit into the host's repository, as an import does, and
// returns it.
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

// setRef sets a ref of the repository. It writes the file directly, because running ostree twice
// for each host is slow.
func (h *Host) setRef(name, commit string) {
	h.t.Helper()
	writeFile(h.t, filepath.Join(h.repo(), "refs/heads", name), []byte(commit+"\n"))
}

// ImageRef sets the ref that marks an image as imported, by its ostree reference, and returns the
// ref.
func (h *Host) ImageRef(reference, commit string) string {
	h.t.Helper()
	ref := rpmostree.ImageRef(reference)
	h.setRef(ref, commit)
	return ref
}

// Refs returns the refs of the repository.
func (h *Host) Refs() []string {
	h.t.Helper()
	refs, err := ostreetree.Refs(h.repo())
	h.must(err)
	return slices.Sorted(maps.Keys(refs))
}

// Layer writes an origin with requested packages for the running system, and enables a package
// repository.
func (h *Host) Layer(packages string) {
	h.t.Helper()
	booted, err := h.Sysroot().Booted()
	h.must(err)
	h.SetOrigin("[origin]\nrefspec=" + booted.Checksum.String() + "\n[packages]\nrequested=" + packages + "\n")
	h.Write("/etc/yum.repos.d/site.repo", []byte("[site]\nbaseurl=file:///var/cache/site\n"))
	h.Write("/var/cache/site/repodata/repomd.xml", nil)
}

// runProgram is the host's Run function.
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

// RpmOstree returns the host's stand-in for rpm-ostree.
func (h *Host) RpmOstree() *rpmostree.Standin {
	return &rpmostree.Standin{
		Root: h.Root, Ostree: h.Ostree.run, Daemon: h.daemon,
		Reboot: func(ctx context.Context) error { return h.Reboot(ctx) },
	}
}

// Version returns the version of the running system.
func (h *Host) Version() string {
	text := string(h.Read("/usr/lib/os-release"))
	_, after, _ := strings.Cut(text, "VERSION=")
	version, _, _ := strings.Cut(after, "\n")
	return version
}

// Options returns the kernel arguments in the running system's boot entry.
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

// Read returns the content of a file on the host; nil if it does not exist.
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

// run runs a program and returns its output.
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

// Undeploy removes the deployment of a boot entry. 0 is the default.
func (h *Host) Undeploy(entry int) error {
	out, err := exec.Command("ostree", "admin", "undeploy", "--sysroot="+h.physical, strconv.Itoa(entry)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
