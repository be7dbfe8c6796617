package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/test/worlds/ostreetree"
)

// verify checks with the real ostree that the commit is complete. For a floor it checks the size
// of the output: the contents, and for that of an image also what else is in its layers.
func (w *world) verify(c *contender, s step) error {
	if s.output == floorDir {
		made, err := sizesOf(filepath.Join(w.trial(), floorDir))
		if err == nil && (made.Bytes < w.content || made.Bytes != w.content && s.image.Name == contentsImage) {
			err = fmt.Errorf("wrote %d bytes instead of %d", made.Bytes, w.content)
		}
		return err
	}
	repo := filepath.Join(w.trial(), repoDir)
	var err error
	switch {
	case s.image.Commit != "":
		_, err = ostreetree.Ostree("show", "--repo="+repo, s.image.Commit)
	case c.rival:
		err = w.sameFiles(repo)
	default:
		err = w.sameTree(repo, s.image.Name)
	}
	if err != nil {
		return err
	}
	said, err := ostreetree.Ostree("fsck", "--repo="+repo)
	if err == nil && strings.Contains(said, "partial commit") {
		err = fmt.Errorf("not whole: %s", said)
	}
	return err
}

// sameTree returns an error unless pivot's commit has exactly the original tree, including
// attributes and labels.
func (w *world) sameTree(repo, name string) error {
	data, err := os.ReadFile(filepath.Join(w.trial(), "result"))
	if err != nil {
		return err
	}
	var result struct{ Commit string }
	if err := json.Unmarshal(data, &result); err != nil {
		return err
	}
	root, err := rootOf(repo, result.Commit)
	want := w.root
	if name == spreadPlainImage {
		want = w.spreadRoot
	}
	if err == nil && root != want {
		err = fmt.Errorf("made another tree: %s instead of %s", root, want)
	}
	return err
}

// sameFiles returns an error unless another contender's commit has the files of the original tree.
func (w *world) sameFiles(repo string) error {
	listing, err := list(repo, "os")
	if err == nil && listing != w.listing {
		err = fmt.Errorf("made another tree: a listing of %d bytes instead of %d", len(listing), len(w.listing))
	}
	return err
}

// rootOf returns the line of "ostree ls" with the checksums of a commit's root.
func rootOf(repo, commit string) (string, error) {
	return ostreetree.Ostree("ls", "--repo="+repo, "-dC", commit, "/")
}

// list returns a listing of the files of all components with modes, owners and sizes.
func list(repo, commit string) (string, error) {
	args := []string{"ls", "--repo=" + repo, "-R", commit}
	for n := range components {
		args = append(args, "/"+component(n))
	}
	return ostreetree.Ostree(args...)
}
