package sepolicy

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
)

// Labels looks up the labels that the running system's SELinux policy has for new files.
type Labels struct {
	contexts *Contexts // nil: no SELinux
	as       string    // path that determines the label of each file; "": its own
}

// RunningLabels returns the Labels of the running system with the given root directory.
func RunningLabels(root string) (Labels, error) {
	if !hostfiles.RunningPolicyIn(root).Loaded() {
		return Labels{}, nil
	}
	files := In(filepath.Join(root, "etc/selinux"))
	config, err := files.Config()
	if err != nil || !config.On() {
		return Labels{}, err
	}
	contexts, err := files.Contexts(config.Policy)
	if err != nil {
		return Labels{}, fmt.Errorf("cannot label files: %w", err)
	}
	return Labels{contexts: contexts}, nil
}

// Of returns the label for a new file of a type at a path, or "" if the kernel's choice is to be kept.
func (l Labels) Of(path string, kind fs.FileMode) (string, error) {
	if l.contexts == nil {
		return "", nil
	}
	label, _, err := l.contexts.Label(cmp.Or(l.as, path), kind)
	return label, err
}

// As returns the Labels that give each file the label of a path, for copies of what is at that path.
func (l Labels) As(path string) Labels { return Labels{l.contexts, path} }
