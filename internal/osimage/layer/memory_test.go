package layer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
)

// memory is a repository in memory.
type memory struct {
	mu    sync.Mutex
	dirs  map[ostree.Checksum]*ostree.Directory
	infos map[ostree.Checksum]ostree.DirInfo
	files map[ostree.Checksum]memoryFile
}

type memoryFile struct {
	info    ostree.FileInfo
	content []byte
	label   string
}

func newMemory() *memory {
	return &memory{dirs: map[ostree.Checksum]*ostree.Directory{}, infos: map[ostree.Checksum]ostree.DirInfo{}, files: map[ostree.Checksum]memoryFile{}}
}

// sum returns a checksum of a value.
func sum(value any) ostree.Checksum { return sha256.Sum256(fmt.Appendf(nil, "%v", value)) }

func (m *memory) AddNewFile(_ context.Context, info ostree.FileInfo, body io.Reader) (ostree.Checksum, error) {
	content, err := io.ReadAll(body)
	if err != nil {
		return ostree.Checksum{}, err
	}
	return m.add(memoryFile{info: info, content: content}), nil
}

func (m *memory) AddExpectedFile(ctx context.Context, _ ostree.Checksum, info ostree.FileInfo, body io.Reader) (ostree.Checksum, error) {
	return m.AddNewFile(ctx, info, body)
}

func (m *memory) add(f memoryFile) ostree.Checksum {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := sum(f)
	m.files[c] = f
	return c
}

func (m *memory) ReadDirectory(c ostree.Checksum) (*ostree.Directory, error) {
	if d := m.dirs[c]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("no directory %s", c)
}

func (m *memory) ReadDirInfo(c ostree.Checksum) (ostree.DirInfo, error) {
	return m.infos[c], nil
}

func (m *memory) StatFile(c ostree.Checksum) (ostree.FileStat, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.files[c]
	if !ok {
		return ostree.FileStat{}, fmt.Errorf("no file %s", c)
	}
	return ostree.FileStat{Mode: f.info.Mode, Size: int64(len(f.content)), Label: f.label}, nil
}

func (m *memory) ReadLink(c ostree.Checksum) (string, error) { return m.files[c].info.Target, nil }

func (m *memory) OpenFile(c ostree.Checksum) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m.files[c].content)), nil
}

func (m *memory) FilesBelow(c ostree.Checksum) (map[ostree.Checksum]bool, error) {
	files := map[ostree.Checksum]bool{}
	for _, f := range m.dirs[c].Files {
		files[f] = true
	}
	for _, below := range m.dirs[c].Dirs {
		more, err := m.FilesBelow(below.Tree)
		if err != nil {
			return nil, err
		}
		for f := range more {
			files[f] = true
		}
	}
	return files, nil
}

func (m *memory) AddDirectory(_ context.Context, d *ostree.Directory) (ostree.Checksum, error) {
	c := sum(*d)
	m.dirs[c] = d
	return c, nil
}

func (m *memory) AddDirInfo(_ context.Context, info ostree.DirInfo) (ostree.Checksum, error) {
	c := sum(info)
	m.infos[c] = info
	return c, nil
}

func (m *memory) Relabel(_ context.Context, c ostree.Checksum, label string) (ostree.Checksum, error) {
	m.mu.Lock()
	f := m.files[c]
	m.mu.Unlock()
	f.label = label
	return m.add(f), nil
}

func (m *memory) MoveLabel(ctx context.Context, c ostree.Checksum, label string) (ostree.Checksum, error) {
	return m.Relabel(ctx, c, label)
}

// paths lists a tree: the content of files by path, and "" for directories.
func (m *memory) paths(root ostree.DirChecksums, at string, into map[string]string) map[string]string {
	d := m.dirs[root.Tree]
	for name, f := range d.Files {
		file := m.files[f]
		into[at+name] = string(file.content)
		if file.info.Mode&unix.S_IFMT == unix.S_IFLNK {
			into[at+name] = "-> " + file.info.Target
		}
	}
	for name, below := range d.Dirs {
		into[at+name] = "directory"
		m.paths(below, at+name+"/", into)
	}
	return into
}
