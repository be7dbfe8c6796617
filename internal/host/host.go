// Package host provides access to one machine: its files, running its programs, rebooting it,
// and reading its current state, which is never cached.
package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/settings"
	"machine-pivot/kargs"
)

// Host is one machine.
type Host struct {
	Root   string // root directory; "/" for the running system
	Run    func(ctx context.Context, argv ...string) ([]byte, error)
	Reboot func(ctx context.Context) error
	Kexec  func(ctx context.Context, next Kernel) error // reboots into a kernel, bypassing the firmware
	Unload func() error                                 // undoes the loading of a kernel by Kexec
	Softly func(ctx context.Context) error              // restarts the userspace from the root that was prepared
	Disk   hostfiles.Disk                               // for changes of its files
	// Uptime returns the time since the running kernel started, including suspend.
	Uptime func() (time.Duration, error)
	// SoftReboots returns how often the machine's system was started again under its running kernel.
	SoftReboots func() (uint32, error)
	// Free returns the free bytes of the file system at a path (of this process, not below
	// Root). The repository has its own calculation, ostree.Repo.Room.
	Free func(path string) (int64, error)
	// Space is like Free, with more about the file system.
	Space func(path string) (Space, error)
	// GrubWrites returns an error if GRUB cannot write to the file at a path.
	GrubWrites func(path string) error
}

// New returns the machine with the given root directory.
func New(root string) *Host {
	h := &Host{Root: root, Run: run, Reboot: reboot, Unload: unload, Softly: softly, Disk: hostfiles.OS{}, Uptime: uptime, Free: free, Space: SpaceAt, GrubWrites: checkGrubWrites}
	h.SoftReboots = h.softReboots
	h.Kexec = func(ctx context.Context, next Kernel) error { return kexec(ctx, next, h.CheckNothingStaged) }
	return h
}

// Architecture returns the running kernel's name for the machine's architecture, such as
// "x86_64" (uname(2)), or "" if unknown. It may differ from the architecture that the program
// was built for.
func Architecture() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Machine[:])
}

// Sysroot returns the machine's deployments.
func (h *Host) Sysroot() *ostree.Sysroot { return ostree.OpenSysroot(h.Root) }

// ReadRepo opens the machine's ostree repository for reading.
func (h *Host) ReadRepo() (*ostree.Repo, error) { return ostree.OpenRepo(h.Sysroot().RepoPath()) }

// OpenRepo opens the machine's ostree repository for writing, even if /sysroot is mounted
// read-only. The repository can be used until view is closed.
func (h *Host) OpenRepo() (repo *ostree.Repo, view io.Closer, err error) {
	return OpenRepo(h.Sysroot())
}

// OpenRepo is Host.OpenRepo for a given sysroot.
func OpenRepo(sysroot *ostree.Sysroot) (repo *ostree.Repo, view io.Closer, err error) {
	dir, err := hostfiles.OpenWritable(sysroot.Physical(), sysroot.RepoPath())
	if err != nil {
		return nil, nil, err
	}
	repo, err = ostree.OpenRepo(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	return repo, dir, nil
}

// CheckRepoWritable returns an error if the machine's ostree repository is not writable, as far
// as this can be checked without writing.
func (h *Host) CheckRepoWritable() error {
	repo, view, err := h.OpenRepo()
	if err != nil {
		return err
	}
	defer view.Close()
	return CheckWritable(repo, h.Sysroot().RepoPath())
}

// CheckWritable returns an error if a repository, of this name in messages, is not writable, as far as this can be checked
// without writing.
func CheckWritable(repo *ostree.Repo, name string) error {
	if err := hostfiles.CheckWritable(filepath.Join(repo.Path(), "objects")); err != nil {
		return fault.New(fault.CannotWrite, "cannot write to repository %s: %w", name, err)
	}
	return nil
}

// Path returns the path of a file of the machine.
func (h *Host) Path(path string) string { return filepath.Join(h.Root, path) }

// Has reports whether a path exists. A dangling symbolic link exists.
func (h *Host) Has(path string) (bool, error) {
	_, err := os.Lstat(h.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot observe the host: %w", err)
	}
	return true, nil
}

// cmdline returns the command line of the running kernel.
func (h *Host) cmdline() (kargs.Line, error) {
	line, err := h.readLine("/proc/cmdline")
	return kargs.Split(line), err
}

// Settings reads the administrator's settings. Without a kernel command line they are unknown: settings.Default is
// returned with the error.
func (h *Host) Settings() (settings.Settings, error) {
	line, err := h.cmdline()
	if err != nil {
		return settings.Default(), err
	}
	return settings.Read(h.Root, line)
}

// PresentCPUs returns the CPUs of the machine, online or offline.
func (h *Host) PresentCPUs() (pinning.CPUSet, error) {
	return h.cpuSet("/sys/devices/system/cpu/present")
}

// FIPS reports whether the running kernel is in FIPS mode. A kernel without that setting is
// not.
func (h *Host) FIPS() (bool, error) {
	line, err := h.optional("/proc/sys/crypto/fips_enabled")
	return line == "1", err
}

// optional is like readLine, but returns "" if the file does not exist.
func (h *Host) optional(path string) (string, error) {
	text, err := h.readLine(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return text, err
}

func (h *Host) readLine(path string) (string, error) {
	data, err := os.ReadFile(h.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.Refused, "cannot observe the host: %w", err).
			WithHint("is %s the root directory of a machine, with /proc and /sys below it?", h.Root)
	}
	if err != nil {
		return "", fmt.Errorf("cannot observe the host: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// run runs a program. The error contains the last lines of its stderr.
func run(ctx context.Context, argv ...string) ([]byte, error) {
	return output(ctx, exec.CommandContext(ctx, argv[0], argv[1:]...), &syscall.SysProcAttr{})
}

// ErrNotInstalled is the error for a program that the host does not have.
var ErrNotInstalled = errors.New("not installed on this host")

// output runs a command with the given attributes and returns its stdout.
func output(ctx context.Context, cmd *exec.Cmd, attributes *syscall.SysProcAttr) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A separate process group: signals from the terminal go to this process only, which
	// decides about the command.
	attributes.Setpgid = true
	cmd.SysProcAttr = attributes
	cmd.WaitDelay = 5 * time.Second // after a kill, a grandchild may keep the pipes open
	err := cmd.Run()
	called := strings.Join(cmd.Args[:min(3, len(cmd.Args))], " ")
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%s: stopped: %w", called, context.Cause(ctx))
	case errors.Is(err, exec.ErrWaitDelay): // it succeeded
	case errors.Is(err, exec.ErrNotFound):
		return nil, fault.New(fault.Refused, "cannot run %s: %w", cmd.Args[0], ErrNotInstalled)
	case err != nil:
		return nil, fmt.Errorf("%s: %s (%w)", called, lastLines(stderr.String(), 5), err)
	}
	return stdout.Bytes(), nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
