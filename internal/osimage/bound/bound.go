// Package bound reads which application images an OS image binds ("logically bound images", bootc's
// manual): services of the system run them, so they must be on the host before it boots.
//
// Like bootc it reads the links below Dir, each to a quadlet of the type .image or .container, and of
// those the key Image, and rejects what bootc rejects: anything but links, another type, the key
// AuthFile, specifiers (%). It also rejects names without a registry, which depend on the machine's
// aliases, names of other units, which bootc takes for images, and names of OS images that podman does not
// know.
//
// Limits: MaxFiles files of MaxSize bytes.
package bound

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
)

// Dir is the directory of the links in an image.
const Dir = "usr/lib/bootc/bound-images.d"

// Limits of the input.
const (
	MaxFiles = 256
	MaxSize  = 64 << 10
)

// Images are the application images that an OS image binds.
type Images struct {
	References []imageref.Reference // sorted, each once
	problems   []error
}

// Err returns an error, of kind fault.BadInput, if a file is invalid. References may then be
// incomplete.
func (i Images) Err() error {
	if len(i.problems) == 0 {
		return nil
	}
	return fault.New(fault.BadInput, "cannot use the application images that the OS image binds in /%s: %w", Dir, errors.Join(i.problems...)).
		WithHint("have the OS image corrected, or go on without its application images: --bound-images=ignore")
}

// Repository is where a commit is read from: a repository, or an import into one, in which objects may be
// missing yet. See ostree.Repo.
type Repository interface {
	Names(commit ostree.Checksum, dir string) ([]string, error)
	ResolveDir(commit ostree.Checksum, name string) (string, bool, error)
	Resolve(commit ostree.Checksum, name string) (ostree.Resolved, bool, error)
}

var _, _ Repository = (*ostree.Repo)(nil), (*ostree.Import)(nil)

// Read reads what a commit binds. It returns only errors of the repository, among them an fs.ErrNotExist
// if an object is missing; see Images.Err for errors in files.
func Read(repo Repository, commit ostree.Checksum) (Images, error) {
	dir, exists, err := repo.ResolveDir(commit, Dir)
	if _, unresolved := errors.AsType[*ostree.UnresolvedError](err); unresolved {
		return Images{problems: []error{err}}, nil
	}
	var names []string
	if err == nil && exists {
		names, err = repo.Names(commit, dir)
	}
	if err != nil {
		return Images{}, fmt.Errorf("cannot read /%s of commit %s: %w", Dir, commit, err)
	}
	var found Images
	for n, name := range names {
		if n == MaxFiles {
			found.problem(name, errors.New("one file too many"))
			break
		}
		text, err := follow(repo, commit, path.Join(dir, name))
		if _, broken := errors.AsType[*fs.PathError](err); broken {
			return Images{}, fmt.Errorf("cannot read /%s/%s of commit %s: %w", Dir, name, commit, err)
		}
		if err == nil {
			err = found.add(name, text)
		}
		if err != nil {
			found.problem(name, err)
		}
	}
	slices.SortFunc(found.References, func(a, b imageref.Reference) int { return strings.Compare(a.String(), b.String()) })
	found.References = slices.Compact(found.References)
	return found, nil
}

func (i *Images) problem(name string, err error) {
	i.problems = append(i.problems, fmt.Errorf("%s: %w", name, err))
}

// add adds the image that a quadlet names.
func (i *Images) add(name, text string) error {
	section, found := map[string]string{".image": "Image", ".container": "Container"}[path.Ext(name)]
	if !found {
		return errors.New("its name ends with neither .image nor .container")
	}
	values, err := valuesOf(text, section)
	if err != nil {
		return err
	}
	if _, has := values["AuthFile"]; has && section == "Image" {
		return errors.New("it has a key AuthFile, which bootc does not support")
	}
	value, has := values["Image"]
	if !has {
		return fmt.Errorf("it has no key Image in [%s]", section)
	}
	ref, err := parse(value)
	if err == nil {
		i.References = append(i.References, ref)
	}
	return err
}

// parse parses a value of the key Image.
func parse(value string) (imageref.Reference, error) {
	if strings.Contains(strings.ReplaceAll(value, "%%", ""), "%") {
		return imageref.Reference{}, fmt.Errorf("%q has a specifier, which bootc does not support", value)
	}
	if ext := path.Ext(value); ext == ".image" || ext == ".build" {
		return imageref.Reference{}, fmt.Errorf("%q is the name of another unit, which bootc would take for an image", value)
	}
	value = strings.ReplaceAll(value, "%%", "%")
	ref, err := imageref.Parse(value)
	switch {
	case err != nil:
		return imageref.Reference{}, err
	case !ref.Remote():
		return imageref.Reference{}, fmt.Errorf("%q is not in a registry", value)
	}
	const docker = "docker://"
	if named, err := imageref.Parse(docker + strings.TrimPrefix(value, docker)); err != nil || named != ref {
		return imageref.Reference{}, fmt.Errorf("%q is a name that only ostree knows: podman wants HOST/PATH:TAG, with %s before it or without", value, docker)
	}
	return ref, nil
}
