package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/test/worlds/vm"
)

// group is the cgroup of a box.
type group struct {
	root *os.File // cgroup2's root, mounted for this process only, nowhere in its file system
	name string   // of the box's directory there
	dir  *os.File // that directory
}

// newGroup makes an empty cgroup. It mounts cgroup2 itself, since a host may have it anywhere, or nowhere.
func newGroup() (*group, error) {
	context, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot mount cgroup2: %w", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, fmt.Errorf("cannot mount cgroup2: %w", err)
	}
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot mount cgroup2: %w", err)
	}
	g := &group{root: os.NewFile(uintptr(mount), "cgroup2")}
	dir, err := os.MkdirTemp(g.path(""), "pivot-box-*")
	if err == nil {
		g.name = filepath.Base(dir)
		g.dir, err = os.Open(dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make a cgroup: %w", err), g.root.Close())
	}
	return g, nil
}

// path returns a path below cgroup2's root, by the name that this process has for the mount.
func (g *group) path(name string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(g.root.Fd())), name)
}

// use returns what the box has used so far.
func (g *group) use() vm.Progress {
	var p vm.Progress
	stat, err := os.ReadFile(g.path(g.name + "/cpu.stat"))
	if err != nil {
		return p // it has just ended
	}
	for line := range strings.Lines(string(stat)) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); found {
			microseconds, _ := strconv.ParseInt(text, 10, 64) // the kernel writes a number
			p.CPU = time.Duration(microseconds) * time.Microsecond
		}
	}
	return p
}

// remove removes the cgroup, with those that the box's systemd has made in it. Nothing may run there any more.
func (g *group) remove() error {
	var below []string
	err := fs.WalkDir(os.DirFS(g.path(g.name)), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			below = append(below, path)
		}
		return err
	})
	for i := len(below) - 1; i >= 0; i-- { // the deepest first
		err = errors.Join(err, unix.Rmdir(g.path(filepath.Join(g.name, below[i]))))
	}
	if err = errors.Join(err, g.dir.Close(), g.root.Close()); err != nil {
		return fmt.Errorf("cannot remove the cgroup of a box: %w", err)
	}
	return nil
}
