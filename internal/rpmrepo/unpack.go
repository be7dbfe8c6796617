// Package rpmrepo handles a repository of RPM packages in a directory: it assembles the
// repository from the layers of an image, and lists its packages.
//
// Formats. The metadata are as createrepo_c writes and libdnf reads them: repodata/repomd.xml
// names the list "primary", an XML file that is uncompressed or compressed with gzip or zstd.
package rpmrepo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

// Unpacked is a repository that is being unpacked from the layers of an image. The layers may
// be unpacked concurrently. The repository is complete after Join.
type Unpacked struct {
	dir   string
	parts []*Part
}

// partsDir holds the parts until they are joined. The leading dot hides it from readers of the
// repository.
const partsDir = ".layers"

// Unpack creates an empty directory for a repository that comes from the given number of
// layers. Existing contents are removed.
func Unpack(dir string, layers int) (*Unpacked, error) {
	u := &Unpacked{dir: dir, parts: make([]*Part, layers)}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, partsDir), 0o755)); err != nil {
		return nil, fmt.Errorf("cannot make the directory of a repository: %w", err)
	}
	return u, nil
}

// Part starts the part of the nth layer. A second call for the same layer starts it over.
func (u *Unpacked) Part(n int) *Part {
	u.parts[n] = &Part{dir: filepath.Join(u.dir, partsDir, strconv.Itoa(n)), gone: map[string]bool{}}
	return u.parts[n]
}

// Part is what one layer contributes to the repository.
type Part struct {
	dir   string
	begun bool
	gone  map[string]bool // paths that this layer removes from the layers below
}

// Remove hides a file of the layers below, or everything in a directory; "." hides everything.
func (p *Part) Remove(name string) { p.gone[name] = true }

// CreateFile creates a file of the layer. If a name occurs twice, the last one wins.
func (p *Part) CreateFile(name string) (io.WriteCloser, error) {
	if !p.begun { // remove what an earlier attempt left
		if err := os.RemoveAll(p.dir); err != nil {
			return nil, err
		}
		p.begun = true
	}
	file := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	return os.Create(file)
}

// Join merges all parts into one directory. A file of an upper layer wins over those of the
// layers below.
func (u *Unpacked) Join() error {
	for n := len(u.parts) - 1; n >= 0; n-- {
		if err := u.move(n); err != nil {
			return fmt.Errorf("cannot put a repository together: %w", err)
		}
	}
	if err := os.RemoveAll(filepath.Join(u.dir, partsDir)); err != nil {
		return fmt.Errorf("cannot put a repository together: %w", err)
	}
	return nil
}

// move moves the files of one part into place, unless a layer above has or removes them.
func (u *Unpacked) move(n int) error {
	part := u.parts[n]
	if part == nil || !part.begun {
		return nil
	}
	return filepath.WalkDir(part.dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(part.dir, file)
		if err != nil || u.hidden(name, n) {
			return err
		}
		to := filepath.Join(u.dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.Rename(file, to)
	})
}

// hidden reports whether a layer above the nth has a file of that name or removes it.
func (u *Unpacked) hidden(name string, n int) bool {
	if _, err := os.Lstat(filepath.Join(u.dir, name)); err == nil {
		return true
	}
	for _, above := range u.parts[n+1:] {
		for at := name; above != nil; at = path.Dir(at) {
			if above.gone[at] {
				return true
			}
			if at == "." {
				break
			}
		}
	}
	return false
}
