package hostimages

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
)

// Limits of a repository. Those that come with an OS have some hundred files and 2 GiB.
const (
	maxRepository        = 8 << 30 // bytes of files
	maxRepositoryEntries = 1 << 16 // files, and files that layers remove; packages in a list
)

// unpackedRepository is a repository that is being unpacked from the layers of an image. The layers may
// be unpacked concurrently. The repository is complete after join.
type unpackedRepository struct {
	dir     string
	parts   []*repositoryPart
	full    bool // bytes is what the disk has room for
	bytes   *guard.Budget
	entries *guard.Budget
}

// partsDir holds the parts until they are joined. The leading dot hides it from readers of the
// repository.
const partsDir = ".layers"

// unpackRepository creates an empty directory for a repository that comes from the given number of
// layers. Existing contents are removed. What is unpacked is counted while it is written: beyond
// free bytes, writing fails with kind fault.CannotWrite, beyond the limits of a repository with
// fault.BadInput.
func unpackRepository(dir string, layers int, free int64) (*unpackedRepository, error) {
	u := &unpackedRepository{
		dir: dir, parts: make([]*repositoryPart, layers), full: free < maxRepository,
		bytes: guard.NewBudget(min(free, maxRepository), "bytes of unpacked packages"), entries: guard.NewBudget(maxRepositoryEntries, "files"),
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, partsDir), 0o755)); err != nil {
		return nil, fmt.Errorf("cannot make the directory of a repository: %w", err)
	}
	return u, nil
}

// part starts the part of the nth layer. A second call for the same layer starts it over.
func (u *unpackedRepository) part(n int) *repositoryPart {
	if again := u.parts[n]; again != nil {
		u.bytes.Return(again.bytes)
		u.entries.Return(again.entries)
	}
	u.parts[n] = &repositoryPart{of: u, dir: filepath.Join(u.dir, partsDir, strconv.Itoa(n)), gone: map[string]bool{}}
	return u.parts[n]
}

// repositoryPart is what one layer contributes to the repository.
type repositoryPart struct {
	of    *unpackedRepository
	dir   string
	begun bool
	gone  map[string]bool // paths that this layer removes from the layers below

	bytes, entries int64 // taken from the budgets
}

// takeEntry takes one entry from its budget.
func (p *repositoryPart) takeEntry() error {
	p.entries++
	return p.of.entries.Take(1)
}

// takeBytes takes n bytes from their budget.
func (p *repositoryPart) takeBytes(n int) error {
	p.bytes += int64(n)
	err := p.of.bytes.Take(int64(n))
	if err != nil && p.of.full {
		return fault.New(fault.CannotWrite, "there is not enough space for the repository of packages: %w", err).WithHint("free space on the file system of /var")
	}
	return err
}

// Remove hides a file of the layers below, or everything in a directory; "." hides everything.
func (p *repositoryPart) Remove(name string) error {
	p.gone[name] = true
	return p.takeEntry()
}

// CreateFile creates a file of the layer. If a name occurs twice, the last one wins.
func (p *repositoryPart) CreateFile(name string) (io.WriteCloser, error) {
	if !p.begun { // remove what an earlier attempt left
		if err := os.RemoveAll(p.dir); err != nil {
			return nil, err
		}
		p.begun = true
	}
	if err := p.takeEntry(); err != nil {
		return nil, err
	}
	file := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	to, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	return countedFile{to, p}, nil
}

// countedFile is a file. Its bytes are taken from the budget of its part.
type countedFile struct {
	file *os.File
	part *repositoryPart
}

// Write implements io.Writer.
func (c countedFile) Write(p []byte) (int, error) {
	if err := c.part.takeBytes(len(p)); err != nil {
		return 0, err
	}
	return c.file.Write(p)
}

// Close implements io.Closer.
func (c countedFile) Close() error { return c.file.Close() }

// join merges all parts into one directory. A file of an upper layer wins over those of the
// layers below.
func (u *unpackedRepository) join() error {
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
func (u *unpackedRepository) move(n int) error {
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
func (u *unpackedRepository) hidden(name string, n int) bool {
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
