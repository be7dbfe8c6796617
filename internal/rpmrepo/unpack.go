// Package rpmrepo handles a repository of RPM packages in a directory: it puts the files
// together that the layers of an image have of it, and reads which packages it has.
//
// Formats. The metadata are as createrepo_c writes and libdnf reads them: repodata/repomd.xml
// names the list "primary", an XML file that is compressed by gzip or zstd, or not at all.
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

// Unpacked is a repository that is unpacked from the layers of an image, each by a goroutine
// of its own. It is complete after Join.
type Unpacked struct {
	dir   string
	parts []*Part
}

// partsDir is where the parts are before they are joined: out of sight of who reads the
// repository.
const partsDir = ".layers"

// Unpack makes an empty directory for a repository from that many layers. What was there
// before is removed.
func Unpack(dir string, layers int) (*Unpacked, error) {
	u := &Unpacked{dir: dir, parts: make([]*Part, layers)}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, partsDir), 0o755)); err != nil {
		return nil, fmt.Errorf("cannot make the directory of a repository: %w", err)
	}
	return u, nil
}

// Part begins the part of the nth layer, from its start.
func (u *Unpacked) Part(n int) *Part {
	u.parts[n] = &Part{dir: filepath.Join(u.dir, partsDir, strconv.Itoa(n)), gone: map[string]bool{}}
	return u.parts[n]
}

// Part is what one layer has of the repository.
type Part struct {
	dir   string
	begun bool
	gone  map[string]bool // what it removes of the layers below
}

// Remove says that the layers below lack a file, or all that is in a directory; "." is all.
func (p *Part) Remove(name string) { p.gone[name] = true }

// CreateFile makes a file of the layer; of two with one name the last counts.
func (p *Part) CreateFile(name string) (io.WriteCloser, error) {
	if !p.begun { // what an earlier try left
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

// Join makes one directory of all parts. The files of a layer go before those of the layers
// below it.
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

// move moves the files of one part that no layer above has or has removed.
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

// hidden reports whether a layer above the nth has a file of the name, or has removed it.
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
