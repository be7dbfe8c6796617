package syskill

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Boot is the world in which a deployment of a sysroot runs as if booted: the
// directories and files that are mounted into it.
type Boot struct {
	Physical string // the root of the file system that holds the deployments
	Root     string // the deployment's directory
	Var      string
	RunDir   string // becomes /run; its file "program" becomes Program
	BootID   string // a file that holds it
	Cmdline  string // a file that holds it
	Program  string
}

// Listener is the descriptor on which a child hands over its filter's listener.
const listenerSocket = 3

// BootEnv is the variable that makes a test binary the child of Run.
const BootEnv = "PIVOT_TEST_BOOT"

// Child is the rest of the process that Run starts: it builds the boot's world
// and becomes the program. It only returns if it could not.
func Child(argv []string) error {
	var b Boot
	if err := json.Unmarshal([]byte(os.Getenv(BootEnv)), &b); err != nil {
		return err
	}
	if err := b.enter(); err != nil {
		return err
	}
	// The filter is the thread's, and exec goes with the thread.
	runtime.LockOSThread()
	listener, err := install()
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(listenerSocket, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return fmt.Errorf("cannot hand over the listener: %w", err)
	}
	unix.CloseOnExec(listenerSocket)
	argv = append([]string{"/run/program"}, argv...)
	return syscall.Exec(argv[0], argv, []string{"PATH=/usr/bin:/usr/sbin", "HOME=/"})
}

// enter makes the deployment the root directory, in this process's own mount namespace.
func (b Boot) enter() error {
	mounts := []struct {
		from, to string
		flags    uintptr
	}{
		{b.Root, "", 0}, {b.Physical, "sysroot", 0}, {filepath.Join(b.Physical, "boot"), "boot", 0},
		{b.Var, "var", 0}, {"/usr", "usr", 0}, {b.RunDir, "run", 0}, {b.Program, "run/program", 0},
		{"/dev", "dev", unix.MS_REC}, {"/sys", "sys", unix.MS_REC},
		{"proc", "proc", 0},
		{b.BootID, "proc/sys/kernel/random/boot_id", 0}, {b.Cmdline, "proc/cmdline", 0},
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for _, m := range mounts {
		to := filepath.Join(b.Root, m.to)
		if err == nil && m.from == "proc" {
			err = unix.Mount("proc", to, "proc", 0, "")
		} else if err == nil {
			err = unix.Mount(m.from, to, "", unix.MS_BIND|m.flags, "")
		}
		if err != nil {
			return fmt.Errorf("cannot mount %s: %w", to, err)
		}
	}
	return errors.Join(unix.Chroot(b.Root), unix.Chdir("/"))
}
