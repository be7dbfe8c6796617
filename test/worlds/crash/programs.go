package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"machine-pivot/internal/ostree"
)

// run runs one of the machine's programs. Programs are stopped together with the process. A machine
// without trial and rollback has none.
func (m *Machine) run(ctx context.Context, argv []string) ([]byte, error) {
	if m.trial == nil && m.returning == nil && !m.guarded {
		return nil, errors.New("this machine has no programs")
	}
	switch line := strings.Join(argv, " "); {
	case line == "ostree --version":
		return []byte("libostree:\n Version: '2024.8'\n"), m.hastyDefault()
	case strings.HasPrefix(line, "ostree admin set-default "):
		return nil, m.effect("set default", nil, unlessStopped(ctx, func() error { return m.setDefault(argv[3]) }))
	case m.trial != nil:
		return m.trial.run(ctx, m, argv)
	}
	return nil, fmt.Errorf("this machine has no %q", argv)
}

// unlessStopped returns do for a program that does nothing once its process is told to stop.
func unlessStopped(ctx context.Context, do func() error) func() error {
	return func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return do()
	}
}

func (m *Machine) indexed(index string) (ostree.Deployment, error) {
	all, err := ostree.OpenSysroot(m.dir).Deployments()
	i, nerr := strconv.Atoi(index)
	if err := errors.Join(err, nerr); err != nil || i >= len(all) {
		return ostree.Deployment{}, fmt.Errorf("there is no deployment %s (%w)", index, err)
	}
	return all[i], nil
}

// setDefault gives a boot entry the highest version, atomically.
func (m *Machine) setDefault(index string) error {
	d, err := m.indexed(index)
	if err != nil {
		return err
	}
	file := filepath.Join(m.dir, "boot/loader/entries", d.Entry.File)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	m.entries++
	text = regexp.MustCompile(`(?m)^version .*`).ReplaceAll(text, fmt.Appendf(nil, "version %d", m.entries))
	return os.WriteFile(file, text, 0o644)
}
