package merge

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"machine-pivot/osimage/imagefault"
	"machine-pivot/selinux"
)

// selinuxDir is where a commit has its policies.
const selinuxDir = "usr/etc/selinux"

// policy is what the tree's own SELinux policy says of files; nil where it has none,
// or has it switched off.
func (t *Tree) policy() (*selinux.Contexts, error) {
	config, err := t.read(selinuxDir + "/config")
	if err != nil {
		return nil, err
	}
	name := selinux.Enabled(string(config))
	if name == "" {
		return nil, nil
	}
	dir := path.Join(selinuxDir, name)
	binary, err := t.lookUpDir(path.Join(dir, "policy"))
	if err != nil {
		return nil, err
	}
	if binary == nil || !hasBinaryPolicy(binary) {
		return nil, imagefault.Damaged("/%s/config wants the SELinux policy %q, but there is no /%s/policy/policy.*", selinuxDir, name, dir)
	}
	c, err := selinux.Read(func(file string) ([]byte, error) {
		text, err := t.read(path.Join(dir, selinux.Dir, file))
		if err == nil && text == nil {
			err = fs.ErrNotExist
		}
		return text, err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, imagefault.Damaged("/%s: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", dir, err)
	}
	return c, nil
}

func hasBinaryPolicy(d *dir) bool {
	for name := range d.files {
		if strings.HasPrefix(name, "policy.") {
			return true
		}
	}
	return false
}
