package layer

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/sepolicy"
)

// selinuxDir is the directory of the SELinux policies in a commit.
const selinuxDir = "usr/etc/selinux"

// policy returns the tree's SELinux policy, or nil if it has none or disables SELinux.
func (t *Tree) policy() (*sepolicy.Contexts, error) {
	files := sepolicy.Files(func(name string) ([]byte, error) {
		text, err := t.read(path.Join(selinuxDir, name))
		if err == nil && text == nil {
			err = fs.ErrNotExist
		}
		return text, err
	})
	config, err := files.Config()
	if err != nil || !config.On() {
		return nil, err
	}
	dir := path.Join(selinuxDir, config.Policy)
	binary, err := t.lookUpDir(path.Join(dir, "policy"))
	if err != nil {
		return nil, err
	}
	if binary == nil || !hasBinaryPolicy(binary) {
		return nil, imagefault.Misbuilt("/%s/config wants the SELinux policy %q, but there is no /%s/policy/policy.*", selinuxDir, config.Policy, dir)
	}
	c, err := files.Contexts(config.Policy)
	if _, invalid := errors.AsType[*sepolicy.InvalidError](err); invalid || errors.Is(err, fs.ErrNotExist) {
		return nil, imagefault.Misbuilt("/%s: %w", dir, err)
	}
	return c, err
}

func hasBinaryPolicy(d *dir) bool {
	for name := range d.files {
		if strings.HasPrefix(name, "policy.") {
			return true
		}
	}
	return false
}
