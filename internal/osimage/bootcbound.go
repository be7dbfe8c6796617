package osimage

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
)

// BoundDir is the directory of the links to quadlets in an image.
const BoundDir = "usr/lib/bootc/bound-images.d"

// Limits of the input.
const (
	MaxBoundFiles = 256
	MaxBoundSize  = 64 << 10
)

// BoundImages are the application images that an OS image binds: services of the system run them, so they must be on
// the host before it boots.
type BoundImages struct {
	References []imageref.Reference // sorted, each once
	problems   []error
}

// Err returns an error, of kind fault.BadInput, if a file is invalid. References may then be
// incomplete.
func (i BoundImages) Err() error {
	if len(i.problems) == 0 {
		return nil
	}
	return fault.New(fault.BadInput, "cannot use the application images that the OS image binds in /%s: %w", BoundDir, errors.Join(i.problems...)).
		WithHint("have the OS image corrected, or go on without its application images: --bound-images=ignore")
}

// ReadBound reads what a commit binds. Like bootc it reads the links below BoundDir, each to a quadlet of the type
// .image or .container, and of those the key Image. It rejects what bootc rejects: anything but links, another type,
// the key AuthFile, specifiers (%). It also rejects names without a registry, which depend on the machine's aliases. It
// rejects names of other units, which bootc takes for images, and names of OS images that podman does not know. It
// returns only errors of the repository, among them an fs.ErrNotExist if an object is missing; see BoundImages.Err for
// errors in files.
func ReadBound(in ostree.Objects, commit ostree.Checksum) (BoundImages, error) {
	dir, exists, err := in.ResolveDir(commit, BoundDir)
	if _, unresolved := errors.AsType[*ostree.UnresolvedError](err); unresolved {
		return BoundImages{problems: []error{err}}, nil
	}
	var names []string
	if err == nil && exists {
		names, err = in.Names(commit, dir)
	}
	if err != nil {
		return BoundImages{}, fmt.Errorf("cannot read /%s of commit %s: %w", BoundDir, commit, err)
	}
	var found BoundImages
	for n, name := range names {
		if n == MaxBoundFiles {
			found.problem(name, errors.New("one file too many"))
			break
		}
		text, err := followBound(in, commit, path.Join(dir, name))
		if _, broken := errors.AsType[*fs.PathError](err); broken {
			return BoundImages{}, fmt.Errorf("cannot read /%s/%s of commit %s: %w", BoundDir, name, commit, err)
		}
		if err == nil {
			err = found.add(name, text)
		}
		if err != nil {
			found.problem(name, err)
		}
	}
	sort.Slice(found.References, func(i, j int) bool { return found.References[i].String() < found.References[j].String() })
	found.References = slices.Compact(found.References)
	return found, nil
}

// followBound reads the file that a link of a commit leads to.
func followBound(in ostree.Objects, commit ostree.Checksum, link string) (string, error) {
	file, exists, err := in.Resolve(commit, link)
	switch {
	case err != nil:
		return "", err
	case !exists:
		return "", fmt.Errorf("it leads to /%s, which is not in the image", file.Path)
	case file.IsDir:
		return "", errors.New("it leads to a directory")
	case file.Links == 0:
		return "", errors.New("it is not a symbolic link")
	case len(file.File) > MaxBoundSize:
		return "", fmt.Errorf("it has %d bytes, more than %d", len(file.File), MaxBoundSize)
	}
	return string(file.File), nil
}

func (i *BoundImages) problem(name string, err error) {
	i.problems = append(i.problems, fmt.Errorf("%s: %w", name, err))
}

// add adds the image that a quadlet names.
func (i *BoundImages) add(name, text string) error {
	section, found := map[string]string{".image": "Image", ".container": "Container"}[path.Ext(name)]
	if !found {
		return errors.New("its name ends with neither .image nor .container")
	}
	values, err := unitValues(text, section)
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
	ref, err := parseBound(value)
	if err == nil {
		i.References = append(i.References, ref)
	}
	return err
}

// parseBound parses a value of the key Image.
func parseBound(value string) (imageref.Reference, error) {
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
