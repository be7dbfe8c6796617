package merge

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"machine-pivot/osimage/imagefault"
	"machine-pivot/ostree"
)

// New begins with a base commit's root.
func New(objects Objects, base ostree.DirChecksums) (*Tree, error) {
	t := &Tree{objects: objects, base: base, root: &dir{saved: base}}
	setup, err := t.prepareRoot()
	t.nonUsr = err == nil && setup.seesRoot()
	return t, err
}

// NewPlain begins with nothing: the layers hold the whole OS.
func NewPlain(objects Objects) *Tree {
	return &Tree{objects: objects, root: implied(0, 0), nonUsr: true}
}

// Layer is a layer that was merged before: its commit's root.
func LayerFrom(root ostree.DirChecksums) *Layer { return &Layer{root: &dir{saved: root}} }

// lookUp is the file of a path in the tree, or nil. Symbolic links on the way are not
// followed.
func (t *Tree) lookUp(at string) (*file, error) {
	d, err := t.lookUpDir(path.Dir(at))
	if err != nil || d == nil {
		return nil, err
	}
	return d.files[path.Base(at)], nil
}

// lookUpDir is the directory of a path in the tree, loaded, or nil.
func (t *Tree) lookUpDir(at string) (*dir, error) {
	d := t.root
	for name := range strings.SplitSeq(at, "/") {
		if name == "." || name == "" {
			continue
		}
		if err := d.load(t.objects); err != nil {
			return nil, err
		}
		if d = d.dirs[name]; d == nil {
			return nil, nil
		}
	}
	return d, d.load(t.objects)
}

// maxConfig bounds a file of the image that is read as a whole, in bytes: policies'
// patterns are below 1 MiB.
const maxConfig = 16 << 20

// read is the content of a regular file in the tree; nil if there is none.
func (t *Tree) read(at string) ([]byte, error) {
	f, err := t.lookUp(at)
	if err != nil || f == nil {
		return nil, err
	}
	stat, err := t.objects.StatFile(f.object)
	if err != nil || isLink(stat.Mode) {
		return nil, err
	}
	if stat.Size > maxConfig {
		return nil, imagefault.Damaged("/%s has more than %d bytes", at, maxConfig)
	}
	in, err := t.objects.OpenFile(f.object)
	if err != nil {
		return nil, fmt.Errorf("cannot read /%s: %w", at, err)
	}
	defer in.Close()
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("cannot read /%s: %w", at, err)
	}
	return data, nil
}

// prepareRoot is what the tree says of how its root is mounted
// (ostree-prepare-root(1)).
func (t *Tree) prepareRoot() (prepareRoot, error) {
	text, err := t.read("usr/lib/ostree/prepare-root.conf")
	return prepareRoot(keyFile(text)), err
}

// prepareRoot are the settings of prepare-root.conf, by "group.key".
type prepareRoot map[string]string

// seesRoot reports whether the directories at the top of the commit are seen by the
// host (ostree-ext's overlayfs_enabled_in_config).
func (p prepareRoot) seesRoot() bool {
	return isTrue(p["root.transient"]) || p.composefs() || p["composefs.enabled"] == "maybe"
}

// composefs reports whether the host cannot boot without composefs.
func (p prepareRoot) composefs() bool {
	switch p["composefs.enabled"] {
	case "signed", "verity":
		return true
	}
	return isTrue(p["composefs.enabled"])
}

func isTrue(value string) bool { return slices.Contains([]string{"yes", "true", "1"}, value) }

// keyFile reads the settings of a GKeyFile, by "group.key".
func keyFile(text []byte) map[string]string {
	settings, group := map[string]string{}, ""
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if name, ok := strings.CutPrefix(line, "["); ok {
			group = strings.TrimSuffix(name, "]")
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok && line[0] != '#' {
			settings[group+"."+strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return settings
}
