package bootloader

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/ostree"
)

// Payload is the boot loader that a system brings for bootupd: the objects of its files, by their paths below the directory
// EFI of a partition. The paths have small letters, since FAT does not tell the others from them.
type Payload map[string]ostree.Checksum

// PayloadOf returns the payload of a commit, from where bootupctl takes it: usr/lib/efi/NAME/VERSION/EFI, or else
// usr/lib/bootupd/updates/EFI. It is empty if there is none. Other boot loaders than GRUB are left out: their programs have
// the same paths below EFI, because shim starts only that one.
func PayloadOf(repo *ostree.Repo, commit ostree.Checksum) (Payload, error) {
	all := Payload{}
	for _, place := range []struct {
		dir   string
		depth int // of the directories EFI in it
	}{{"usr/lib/efi", 3}, {"usr/lib/bootupd/updates", 1}} {
		tree, err := repo.DirTree(commit, place.dir)
		if err == nil && tree != (ostree.Checksum{}) {
			err = all.find(repo, tree, place.depth)
		}
		if err != nil || len(all) > 0 {
			return all, err
		}
	}
	return all, nil
}

// find adds what is in the directories EFI at a depth below a tree.
func (p Payload) find(repo *ostree.Repo, tree ostree.Checksum, depth int) error {
	dir, err := repo.ReadDirectory(tree)
	if err != nil {
		return err
	}
	for name, below := range dir.Dirs {
		switch {
		case name == "grub-cc" || name == "systemd-boot":
		case depth > 1:
			err = p.find(repo, below.Tree, depth-1)
		case name == "EFI":
			err = p.add(repo, below.Tree, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p Payload) add(repo *ostree.Repo, tree ostree.Checksum, at string) error {
	dir, err := repo.ReadDirectory(tree)
	if err != nil {
		return err
	}
	for name, object := range dir.Files {
		p[path.Join(at, strings.ToLower(name))] = object
	}
	for name, below := range dir.Dirs {
		if err := p.add(repo, below.Tree, path.Join(at, strings.ToLower(name))); err != nil {
			return err
		}
	}
	return nil
}

// Shims returns the paths of the shims in directories that have GRUB, too.
func (p Payload) Shims() (all []string) {
	for name := range p {
		if isProgram(name, "shim") && len(p.GRUBs(path.Dir(name))) > 0 {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// GRUBs returns the paths of the boot loaders that are started next, in one directory; "": in all.
func (p Payload) GRUBs(dir string) (all []string) {
	for name := range p {
		if isProgram(name, "grub") && (dir == "" || path.Dir(name) == dir) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func isProgram(name, kind string) bool {
	return strings.HasPrefix(path.Base(name), kind) && path.Ext(name) == ".efi"
}

// digests returns the SHA-256 digests of the files.
func (p Payload) digests(repo *ostree.Repo) (map[string]string, error) {
	all := map[string]string{}
	for name, object := range p {
		sum, err := digestOf(repo.FileObject(object))
		if err != nil {
			return nil, err
		}
		all[name] = sum
	}
	return all, nil
}

func digestOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return hex.EncodeToString(hash.Sum(nil)), err
}
