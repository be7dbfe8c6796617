package host

import (
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// programDirs is the search path for a system's programs, the same as systemd's for units.
const programDirs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// RunIn returns a function like Host.Run that runs programs in a chroot: those of the system at
// root.
func RunIn(root string) func(ctx context.Context, argv ...string) ([]byte, error) {
	return func(ctx context.Context, argv ...string) ([]byte, error) {
		program, err := lookIn(root, argv[0])
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, program, argv[1:]...) // absolute: Go would look names up outside of the chroot
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=" + programDirs, "HOME=/root", "LANG=C.UTF-8"}
		return output(ctx, cmd, &syscall.SysProcAttr{Chroot: root})
	}
}

// lookIn finds a program in the system at root and returns its path in the chroot.
func lookIn(root, program string) (string, error) {
	dirs := filepath.SplitList(programDirs)
	if strings.Contains(program, "/") {
		dirs = []string{"/"}
	}
	for _, dir := range dirs {
		name := path.Join(dir, program)
		outside, err := hostfiles.ResolveIn(root, name)
		if err != nil {
			continue
		}
		if info, err := os.Stat(outside); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return name, nil
		}
	}
	return "", fault.New(fault.Refused, "cannot run %s: %w", program, ErrNotInstalled)
}
