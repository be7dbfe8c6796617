package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"machine-pivot/test/tools/machinefiles"
	"machine-pivot/test/worlds/ostreetree"
)

// The tree is divided into components, like an OS into packages: neighbouring files, in parts of
// equal size. An update changes most files of a few components, 5 % of all content.
const (
	components    = 64
	touched       = 4
	touchEvery    = components / touched
	updatePercent = 5
)

// In an image with derived layers, the base has 10/13 of each component, as with 1 GB of 1.3 GB.
// The rest is in three layers, of which the first is the largest, as in the images of nodes.
const (
	baseParts     = 10
	wholeParts    = 13
	derivedLayers = 3
)

// derivedLayer returns the index of the derived layer for a component's files.
func derivedLayer(component int) int {
	switch {
	case component < components*8/12:
		return 0
	case component < components*11/12:
		return 1
	}
	return 2
}

// treeFacts describes the tree.
type treeFacts struct {
	Files      int   `json:"files"`
	Bytes      int64 `json:"bytes"`
	Components int   `json:"components"`
	Derived    int64 `json:"derived_bytes"` // size of the files in derived layers
	Changed    int64 `json:"changed_bytes"` // size of the files that the update changes
	Spread     int64 `json:"spread_bytes"`  // size of the files that the update of the spread image changes
}

// component returns the directory of the nth component.
func component(n int) string { return fmt.Sprintf("usr/component-%02d", n) }

// componentOf returns the number of the component that a path of the tree is in.
func componentOf(path string) int {
	rest, _ := strings.CutPrefix(path, "usr/component-")
	n, err := strconv.Atoi(rest[:min(len(rest), 2)])
	if err != nil {
		return 0 // not in a component
	}
	return n
}

// writeTree writes the picked files as a bootable tree.
func writeTree(dir string, files []machinefiles.File) (treeFacts, error) {
	facts := treeFacts{Files: len(files), Components: components}
	for _, p := range layOut(files) {
		if err := p.CopyTo(filepath.Join(dir, p.name), byte(p.Again)); err != nil {
			return facts, err
		}
		facts.Bytes += p.Size
		if p.derived {
			facts.Derived += p.Size
		}
	}
	if err := writeFiles(dir, map[string]string{"usr/lib/modules/1/vmlinuz": "kernel", "usr/lib/modules/1/initramfs.img": "initramfs", "usr/lib/os-release": "ID=benchmark\n"}); err != nil {
		return facts, err
	}
	return facts, writePolicy(filepath.Join(dir, "usr/etc/selinux"))
}

// changeTree applies the update to the tree. It returns the total size of the changed files in
// bytes.
func changeTree(dir string, files []machinefiles.File) (changed int64, err error) {
	share := machinefiles.Bytes(files) * updatePercent / 100 / touched // for each touched component
	for _, p := range layOut(files) {
		due := share * int64(p.component/touchEvery+1) // what one component lacks is made up for by the next
		if p.component%touchEvery != 0 || changed+p.Size > due {
			continue
		}
		if err := p.CopyTo(filepath.Join(dir, p.name), byte(p.Again)+128); err != nil {
			return changed, err
		}
		changed += p.Size
	}
	return changed, nil
}

// placed is a file with its place in the tree.
type placed struct {
	machinefiles.File
	component int
	name      string
	derived   bool // in an image with derived layers, it is in one of these
}

// layOut assigns a place to each file.
func layOut(files []machinefiles.File) []placed {
	var before int64
	total := machinefiles.Bytes(files)
	places := make([]placed, len(files))
	for i, f := range files {
		n := int(before * components / max(total, 1))
		within := before*components - int64(n)*total // position in the component, from 0 to total
		name := filepath.Join(component(n), f.Name)
		if f.Again > 0 {
			name += fmt.Sprintf(".%d", f.Again)
		}
		places[i] = placed{File: f, component: n, name: name, derived: within*wholeParts >= baseParts*total}
		before += f.Size
	}
	return places
}

// commit commits a tree, labelled by its own policy, and returns the checksum.
func commit(repo, tree, version string, args ...string) (string, error) {
	if err := applyPolicy(tree); err != nil {
		return "", err
	}
	return ostreetree.Ostree(append([]string{"commit", "--repo=" + repo, "--branch=os", "--subject=benchmark", "--timestamp=@1700000000",
		"--owner-uid=0", "--owner-gid=0", "--add-metadata-string=version=" + version, "--tree=dir=" + tree}, args...)...)
}
