package enable

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
)

// ImageDir has the units of an image. Units in /run and /usr/local, which are not part of an image,
// are ignored.
const ImageDir = "/usr/lib/systemd/system"

// maxAliases bounds the number of aliases that are followed from one name.
const maxAliases = 8

// found is a unit of a system.
type found struct {
	name string // with aliases followed, and with the instance if one was requested
	file string // path of its file; for an instance without a file, that of its template
	text string // of the file and its drop-ins
}

var (
	errNoUnit = errors.New("there is no such unit")
	errMasked = errors.New("it is masked")
)

// find finds a unit by its name or an alias.
func (r *resolver) find(name string) (found, error) {
	for range maxAliases {
		file, at, err := r.fileOf(name)
		if err != nil {
			return found{}, err
		}
		if masks(file) {
			return found{}, errMasked
		}
		if file.Kind != hostfiles.KindLink {
			return r.withDropIns(name, at, file)
		}
		if name, err = followAlias(name, at, file.Target); err != nil {
			return found{}, err
		}
	}
	return found{}, errors.New("there are too many aliases")
}

// fileOf finds the file or link with a unit's name, and its path. /etc takes precedence over the
// image, and the unit itself over the template of an instance.
func (r *resolver) fileOf(name string) (hostfiles.File, string, error) {
	names := []string{name}
	if template, _, isInstance := cutInstance(name); isInstance {
		names = append(names, template)
	}
	for _, name := range names {
		for _, tree := range []struct {
			Tree
			dir string
		}{{r, Dir}, {r.system.Image, ImageDir}} {
			at := path.Join(tree.dir, name)
			if file, there, err := tree.Look(at); err != nil || there {
				return file, at, err
			}
		}
	}
	return hostfiles.File{}, "", errNoUnit
}

// followAlias returns the name of the unit to which a link with the given name, path and target
// leads.
func followAlias(name, at, target string) (string, error) {
	to := absolute(at, target)
	if dir := path.Dir(to); dir != Dir && dir != ImageDir || !IsName(path.Base(to)) {
		return "", errors.New("not implemented: its file is a link to " + target + ", which is no unit of the system")
	}
	next := path.Base(to)
	if _, instance, isInstance := cutInstance(name); isInstance {
		next = strings.Replace(next, "@.", "@"+instance+".", 1)
	}
	return next, nil
}

// masks reports whether what is at a unit's path masks the unit: a link to /dev/null or, as for
// systemd, an empty file.
func masks(f hostfiles.File) bool {
	return f.Kind == hostfiles.KindLink && f.Target == "/dev/null" || f.Kind == hostfiles.KindFile && len(f.Content) == 0
}

// absolute returns the absolute target of a link at a path. It replaces /lib by /usr/lib.
func absolute(at, target string) string {
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(at), target)
	}
	target = path.Clean(target)
	if strings.HasPrefix(target, "/lib/") {
		return "/usr" + target
	}
	return target
}

// withDropIns returns a unit with its drop-ins: their sections [Install] count too.
func (r *resolver) withDropIns(name, at string, file hostfiles.File) (found, error) {
	if file.Kind != hostfiles.KindFile {
		return found{}, errMasked
	}
	u := found{name: name, file: at, text: string(file.Content)}
	dirs := []string{name + ".d"}
	if template, _, isInstance := cutInstance(name); isInstance {
		dirs = append(dirs, template+".d")
	}
	dropins := map[string]string{} // texts by file name
	for _, dir := range dirs {
		if err := r.read(dropins, path.Join(Dir, dir), path.Join(ImageDir, dir), ".conf"); err != nil {
			return u, err
		}
	}
	for _, dropin := range slices.Sorted(maps.Keys(dropins)) {
		u.text += "\n" + dropins[dropin]
	}
	return u, nil
}

// read adds the texts of the files in a directory of /etc and one of the image to texts, by file
// name. It does not replace texts that are there already, and /etc takes precedence.
func (r *resolver) read(texts map[string]string, etc, image, suffix string) error {
	for _, tree := range []struct {
		Tree
		dir string
	}{{r, etc}, {r.system.Image, image}} {
		names, err := tree.Names(tree.dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, known := texts[name]; known || path.Ext(name) != suffix {
				continue
			}
			file, there, err := tree.Look(path.Join(tree.dir, name))
			if err != nil {
				return err
			}
			if there {
				texts[name] = string(file.Content)
			}
		}
	}
	return nil
}

// nameIn returns the first component of a path below dir, and whether the path is below dir.
func nameIn(dir, at string) (string, bool) {
	rest, below := strings.CutPrefix(at, dir+"/")
	name, _, _ := strings.Cut(rest, "/")
	return name, below
}
