package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// ReadFile reads a file from a powered-off machine's disk. path is from the
// root of the file system: see StateRoot, VarDir and Deployments.
func (m *Machine) ReadFile(path string) ([]byte, error) {
	ctx := context.Background() // takes milliseconds
	if err := m.replayJournal(ctx); err != nil {
		return nil, err
	}
	return m.debugfs(ctx, "cat "+quote(path))
}

// Deployments are the deployments' directories on a powered-off machine's disk.
func (m *Machine) Deployments() ([]string, error) {
	ctx := context.Background()
	if err := m.replayJournal(ctx); err != nil {
		return nil, err
	}
	names, err := m.list(ctx, StateRoot+"/deploy")
	var dirs []string
	for _, name := range names {
		if !strings.HasSuffix(name, ".origin") {
			dirs = append(dirs, StateRoot+"/deploy/"+name)
		}
	}
	return dirs, err
}

// replayJournal brings the file system to what was last written, which a boot
// loader that reads ext4 does too: without it files can seem absent or old after
// a power cut.
func (m *Machine) replayJournal(ctx context.Context) error {
	_, err := run(ctx, "e2fsck", "-p", "-E", "journal_only", m.Disk)
	const repaired = 1
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == repaired {
		return nil
	}
	return err
}

// list names what a directory on the disk holds.
func (m *Machine) list(ctx context.Context, dir string) ([]string, error) {
	out, err := m.debugfs(ctx, "ls -p "+quote(dir))
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		// /inode/mode/uid/gid/name/size/
		fields := strings.Split(line, "/")
		if len(fields) > 5 && fields[5] != "." && fields[5] != ".." && fields[5] != "" {
			names = append(names, fields[5])
		}
	}
	return names, nil
}

// debugfs runs one request on the disk, read-only and without reading bitmaps.
func (m *Machine) debugfs(ctx context.Context, request string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "debugfs", "-c", "-R", request, m.Disk)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if said := complaint(stderr.String()); err == nil && said != "" {
		err = errors.New(said)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read disk %s: %s: %w", m.Disk, request, err)
	}
	return stdout.Bytes(), nil
}

// complaint is what debugfs, which exits with 0 in any case, said of a failure.
func complaint(stderr string) string {
	var said []string
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "debugfs 1.") && !strings.Contains(line, "catastrophic mode") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	return strings.Join(said, "; ")
}

// quote makes a path one word for debugfs, which doubles quotes within.
func quote(path string) string { return `"` + strings.ReplaceAll(path, `"`, `""`) + `"` }
