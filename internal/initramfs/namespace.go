package initramfs

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
)

// marker is the environment variable that says, by its PID, that a process is in
// its namespace already.
const marker = "PIVOT_NAMESPACE"

// Enter gives this process a mount namespace of its own, in which the system at
// root has the running kernel's file systems. A namespace belongs to threads, and
// Go has many: so the program is started anew in it, with the same PID, and only
// there Enter returns without an error.
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

// restart starts the program anew in a namespace.
func restart(root string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := hostfiles.EnterNamespace(); err != nil {
		return later("%w", err)
	}
	environment := append(os.Environ(), marker+"="+strconv.Itoa(os.Getpid()))
	// Not from a file: the one that was started may be gone.
	err := unix.Exec("/proc/self/exe", os.Args, append(environment, trust(root)...))
	return later("cannot start the program anew in a mount namespace: %w", err)
}

func bind(from, to string, flags uintptr) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|flags, ""); err != nil {
		return later("cannot mount %s at %s: %w", from, to, err)
	}
	return nil
}
