package live

import (
	"fmt"
	"io/fs"

	"machine-pivot/internal/selinux"
)

// labeller gives a file the SELinux label that the policy has for a path.
type labeller func(file, path string, kind fs.FileMode) error

// labels are those of the running policy. A file that is renamed keeps the label that it
// has, which in the staging directory would be that one's.
func (r *Runner) labels() (labeller, error) {
	none := func(string, string, fs.FileMode) error { return nil }
	if !selinux.Running(r.Root).Loaded() {
		return none, nil
	}
	files := selinux.In(r.path("/etc/selinux"))
	config, err := files.Config()
	if err != nil || !config.On() {
		return none, err
	}
	contexts, err := files.Contexts(config.Policy)
	if err != nil {
		return nil, fmt.Errorf("cannot label files: %w", err)
	}
	return func(file, path string, kind fs.FileMode) error {
		label, known, err := contexts.Label(path, kind)
		if err != nil {
			return fmt.Errorf("cannot label files: %w", err)
		}
		if !known {
			return nil
		}
		return selinux.SetLabel(file, label)
	}, nil
}
