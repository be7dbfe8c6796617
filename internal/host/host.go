// Package host is the machine as a value: where its files are, how its programs
// run and how it reboots. What it is, Observe reads afresh each time.
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
	"machine-pivot/kargs"
)

// Host is one machine.
type Host struct {
	Root   string // its root directory, "/" for the running system
	Run    func(ctx context.Context, argv ...string) ([]byte, error)
	Reboot func(ctx context.Context) error
	Kexec  func(ctx context.Context, next Kernel) error // reboots into a kernel, past the firmware
	Disk   hostfiles.Disk                               // where its files are changed
	// Uptime is how long ago the running kernel started, time asleep included.
	Uptime func() (time.Duration, error)
	// Free is how many bytes the file system at a path (of ours, not of Root) has
	// left. The repository has a reckoning of its own: ostree.Repo.Room.
	Free func(path string) (int64, error)
}

// New is the machine whose root directory is given.
func New(root string) *Host {
	return &Host{Root: root, Run: run, Reboot: reboot, Kexec: kexec, Disk: hostfiles.OS{}, Uptime: uptime, Free: free}
}

// Architecture is the running kernel's name for the machine's architecture, as
// "x86_64" (uname(2)); "" if it has none. A program may be of another.
func Architecture() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Machine[:])
}

// Sysroot reads the machine's deployments.
func (h *Host) Sysroot() *ostree.Sysroot { return ostree.OpenSysroot(h.Root) }

// ReadRepo opens the machine's ostree repository for reading.
func (h *Host) ReadRepo() (*ostree.Repo, error) { return ostree.OpenRepo(h.Sysroot().RepoPath()) }

// OpenRepo opens the machine's ostree repository for writing, also where /sysroot
// is mounted read-only. The repository can be used until view is closed.
func (h *Host) OpenRepo() (repo *ostree.Repo, view io.Closer, err error) {
	return OpenRepo(h.Sysroot())
}

// OpenRepo is Host.OpenRepo for who knows a machine's deployments alone.
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

// CheckRepoWritable is an error if the machine's ostree repository cannot be written,
// as far as is known without a write.
func (h *Host) CheckRepoWritable() error {
	repo, view, err := h.OpenRepo()
	if err != nil {
		return err
	}
	defer view.Close()
	if err := hostfiles.CheckWritable(filepath.Join(repo.Path(), "objects")); err != nil {
		return fault.New(fault.CannotWrite, "cannot write to repository %s: %w", h.Sysroot().RepoPath(), err)
	}
	return nil
}

// Path is the path of a file of the machine.
func (h *Host) Path(path string) string { return filepath.Join(h.Root, path) }

// Has reports whether there is something at a path, be it a link that leads nowhere.
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

// BootID is the kernel's id of this boot.
func (h *Host) BootID() (string, error) { return h.readLine("/proc/sys/kernel/random/boot_id") }

// cmdline is the command line that the running kernel was started with.
func (h *Host) cmdline() (kargs.Line, error) {
	line, err := h.readLine("/proc/cmdline")
	return kargs.Split(line), err
}

// PresentCPUs are the CPUs that the machine has, online or not.
func (h *Host) PresentCPUs() (pinning.CPUSet, error) {
	line, err := h.readLine("/sys/devices/system/cpu/present")
	if err != nil {
		return pinning.CPUSet{}, err
	}
	return pinning.ParseCPUSet(line)
}

// FIPS reports whether the running kernel is in FIPS mode; a kernel that does
// not know the setting is not.
func (h *Host) FIPS() (bool, error) {
	line, err := h.optional("/proc/sys/crypto/fips_enabled")
	return line == "1", err
}

// optional is readLine for a file that need not be there: then "".
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

// run runs a program; its error holds the last of what it said on stderr.
func run(ctx context.Context, argv ...string) ([]byte, error) {
	return output(ctx, exec.CommandContext(ctx, argv[0], argv[1:]...), &syscall.SysProcAttr{})
}

// ErrNotInstalled is why a program cannot be run that the host does not have.
var ErrNotInstalled = errors.New("not installed on this host")

// output runs a command with attributes and returns what it printed.
func output(ctx context.Context, cmd *exec.Cmd, attributes *syscall.SysProcAttr) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A group of its own: what is typed at the terminal stops us, and we decide what stops it.
	attributes.Setpgid = true
	cmd.SysProcAttr = attributes
	cmd.WaitDelay = 5 * time.Second // after a kill: a child of its own may hold the pipes
	err := cmd.Run()
	called := strings.Join(cmd.Args[:min(3, len(cmd.Args))], " ")
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%s: stopped: %w", called, context.Cause(ctx))
	case errors.Is(err, exec.ErrWaitDelay): // it ended well
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
