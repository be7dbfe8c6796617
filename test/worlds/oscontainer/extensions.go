package oscontainer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/rpmpack"
)

// RPM is a package to be made. Its files are owned by root, its release is 1.
type RPM struct {
	Name, Version string
	Files         map[string][]byte // by their absolute paths
	Sources       map[string]string // files of this machine, by their paths in the package
}

// write makes the package file.
func (p RPM) write(dir string) (err error) {
	r, err := rpmpack.NewRPM(rpmpack.RPMMetaData{Name: p.Name, Version: p.Version, Release: "1", Arch: "x86_64", Compressor: "gzip", Summary: p.Name, Licence: "none"})
	if err != nil {
		return err
	}
	for name, content := range p.Files {
		r.AddFile(rpmpack.RPMFile{Name: name, Body: content, Mode: 0o100644, Owner: "root", Group: "root"})
	}
	for name, source := range p.Sources {
		content, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		r.AddFile(rpmpack.RPMFile{Name: name, Body: content, Mode: 0o100644, Owner: "root", Group: "root"})
	}
	file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%s-1.x86_64.rpm", p.Name, p.Version)))
	if err != nil {
		return err
	}
	return errors.Join(r.Write(file), file.Close())
}

// Repository makes a package repository in a directory with createrepo_c.
func Repository(dir string, packages []RPM) error {
	for _, p := range packages {
		if err := p.write(dir); err != nil {
			return fmt.Errorf("cannot make package %s: %w", p.Name, err)
		}
	}
	if out, err := exec.Command("createrepo_c", "--quiet", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot make a repository of packages: %w: %s", err, out)
	}
	return nil
}

// Extensions builds an extensions image: it has a package repository in the same directory as
// the images of the machine-config operator.
func Extensions(packages []RPM, opts ...Option) (v1.Image, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	const below = "usr/share/rpm-ostree/extensions"
	root := filepath.Join(o.workDir, "extensions")
	if err := os.MkdirAll(filepath.Join(root, below), 0o755); err != nil {
		return nil, err
	}
	if err := Repository(filepath.Join(root, below), packages); err != nil {
		return nil, err
	}
	return PlainTree(root, "1", 2, opts...)
}
