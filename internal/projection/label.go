package projection

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/selinux"
)

// labels are those that the running system's SELinux policy has for what is made.
type labels struct{ contexts *selinux.Contexts } // nil: it has none

// runningLabels are the labels of the system with a root directory.
func runningLabels(root string) (labels, error) {
	if !selinux.Running(root).Loaded() {
		return labels{}, nil
	}
	files := selinux.In(filepath.Join(root, "etc/selinux"))
	config, err := files.Config()
	if err != nil || !config.On() {
		return labels{}, err
	}
	contexts, err := files.Contexts(config.Policy)
	if err != nil {
		return labels{}, fmt.Errorf("cannot label what is projected: %w", err)
	}
	return labels{contexts}, nil
}

// of is the label of an entry; "" if it gets the one that the kernel gives.
func (l labels) of(e hostfiles.Entry) (string, error) {
	if l.contexts == nil {
		return "", nil
	}
	types := map[hostfiles.Kind]fs.FileMode{hostfiles.KindDirectory: fs.ModeDir, hostfiles.KindLink: fs.ModeSymlink}
	label, _, err := l.contexts.Label(e.Path, types[e.Kind])
	return label, err
}
