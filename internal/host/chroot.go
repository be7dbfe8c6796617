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

// programDirs are where a system's programs are, as systemd has it for units.
const programDirs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// RunIn runs programs as Host.Run does, in a chroot: those of the system at root,
// with what they find there.
func RunIn(root string) func(ctx context.Context, argv ...string) ([]byte, error) {
	return func(ctx context.Context, argv ...string) ([]byte, error) {
		program, err := lookIn(root, argv[0])
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, program, argv[1:]...) // a path: Go looks for names outside
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=" + programDirs, "HOME=/root", "LANG=C.UTF-8"}
		return output(ctx, cmd, &syscall.SysProcAttr{Chroot: root})
	}
}

// lookIn finds a program in the system at root, by the path that it has there.
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
