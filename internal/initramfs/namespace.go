package initramfs

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
)

// marker is the environment variable with the PID of the process that already runs in its
// namespace.
const marker = "PIVOT_NAMESPACE"

// Enter moves this process to a private mount namespace and mounts /proc, /sys, /dev and /run
// in the system at root. A namespace belongs to a thread, and a Go program has several. So
// Enter creates the namespace in one thread and executes the program again (execve), with the
// same PID. Enter returns nil only in the new program.
func Enter(root string) error {
	if os.Getenv(marker) != strconv.Itoa(os.Getpid()) {
		return restart(root)
	}
	for _, dir := range []string{"proc", "sys", "dev", "run"} {
		if err := bind("/"+dir, filepath.Join(root, dir), unix.MS_REC); err != nil {
			return err
		}
	}
	return nil
}

// restart executes the program again in a new namespace.
func restart(root string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := hostfiles.EnterNamespace(); err != nil {
		return deferred("%w", err)
	}
	environment := append(os.Environ(), marker+"="+strconv.Itoa(os.Getpid()))
	// The path of the file may have been replaced, so use /proc.
	err := unix.Exec("/proc/self/exe", os.Args, append(environment, trust(root)...))
	return deferred("cannot start the program anew in a mount namespace: %w", err)
}

func bind(from, to string, flags uintptr) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|flags, ""); err != nil {
		return deferred("cannot mount %s at %s: %w", from, to, err)
	}
	return nil
}
