// Command enter is the PID 1 of a box until that is systemd: it does what a kernel and an initramfs do before. Its
// argument is an inside.Config as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/test/box/inside"
)

func main() {
	// Namespaces belong to a thread, and offsets of clocks can be set only for the main one. Go's main goroutine runs
	// there at first, but is not bound to it.
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		_ = unix.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	unix.CloseOnExec(inside.Status)
	fmt.Fprintln(os.NewFile(inside.Status, "status"), enter(os.Args[1]))
	os.Exit(1)
}

// enter does not return if it succeeds.
func enter(config string) error {
	if _, err := io.Copy(io.Discard, os.NewFile(inside.Begin, "begin")); err != nil {
		return err
	}
	var c inside.Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	unix.Umask(0)
	b, err := newInitramfs(c)
	if err != nil {
		return err
	}
	for _, step := range []func() error{b.mountRoot, b.lendUsr, b.network, b.prepareRoot, b.kernelFiles, b.cgroup, b.devices, b.switchRoot, b.clock} {
		if err := step(); err != nil {
			return err
		}
	}
	// In a container, systemd reads the kernel command line from its own arguments.
	const init = "/sbin/init"
	err = unix.Exec(init, append([]string{init}, strings.Fields(c.Cmdline)...), os.Environ())
	return fmt.Errorf("cannot start %s: %w", init, err)
}
