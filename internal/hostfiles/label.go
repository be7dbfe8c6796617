package hostfiles

import (
	"cmp"
	"fmt"
	"path/filepath"

	"machine-pivot/internal/selinux"
)

// Labels looks up the labels that the running system's SELinux policy has for new files.
type Labels struct {
	contexts *selinux.Contexts // nil: no SELinux
	as       string            // path that determines the label of each entry; "": its own
}

// RunningLabels returns the Labels of the running system with the given root directory.
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
	return Labels{contexts: contexts}, nil
}

// Of returns the label for an entry, or "" if the kernel's choice is to be kept.
func (l Labels) Of(e Entry) (string, error) {
	if l.contexts == nil {
		return "", nil
	}
	label, _, err := l.contexts.Label(cmp.Or(l.as, e.Path), e.Kind.Type())
	return label, err
}

// As returns the Labels that give each entry the label of a path, for copies of what is at that path.
func (l Labels) As(path string) Labels { return Labels{l.contexts, path} }
