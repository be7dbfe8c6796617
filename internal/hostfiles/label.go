package hostfiles

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"machine-pivot/internal/selinux"
)

// Labels are those that the SELinux policy of a system that runs has for what is made.
type Labels struct{ contexts *selinux.Contexts } // nil: it has none

// RunningLabels are the labels of the system with a root directory.
func RunningLabels(root string) (Labels, error) {
	if !selinux.Running(root).Loaded() {
		return Labels{}, nil
	}
	files := selinux.In(filepath.Join(root, "etc/selinux"))
	config, err := files.Config()
	if err != nil || !config.On() {
		return Labels{}, err
	}
	contexts, err := files.Contexts(config.Policy)
	if err != nil {
		return Labels{}, fmt.Errorf("cannot label files: %w", err)
	}
	return Labels{contexts}, nil
}

// Of is the label of an entry; "" if it gets the one that the kernel gives.
func (l Labels) Of(e Entry) (string, error) {
	if l.contexts == nil {
		return "", nil
	}
	types := map[Kind]fs.FileMode{KindDirectory: fs.ModeDir, KindLink: fs.ModeSymlink}
	label, _, err := l.contexts.Label(e.Path, types[e.Kind])
	return label, err
}
