package vm

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// TreeFile is a file to put into a guest's tree or onto a disk.
type TreeFile struct {
	Path    string // absolute, in the guest
	Mode    fs.FileMode
	Content []byte
	Source  string // a file on the host to take the content from, instead of Content
	Symlink string // the target, if it is a symbolic link
}

// TreeFiles returns the files and symbolic links below a directory.
func TreeFiles(dir string) ([]TreeFile, error) {
	var files []TreeFile
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := TreeFile{Path: strings.TrimPrefix(path, dir), Mode: info.Mode().Perm(), Source: path}
		if d.Type() == fs.ModeSymlink {
			f.Source = ""
			f.Symlink, err = os.Readlink(path)
		}
		files = append(files, f)
		return err
	})
	return files, err
}

// content returns the file's content.
func (f TreeFile) content() ([]byte, error) {
	if f.Source == "" {
		return f.Content, nil
	}
	return os.ReadFile(f.Source)
}

// addTo adds all properties of the file to a hash.
func (f TreeFile) addTo(h hash.Hash) error {
	content, err := f.content()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(h, "%q %o %q %x\n", f.Path, f.Mode, f.Symlink, sha256.Sum256(content))
	return err
}

// addAll adds files to a hash.
func addAll(h hash.Hash, files []TreeFile) error {
	for _, f := range files {
		if err := f.addTo(h); err != nil {
			return err
		}
	}
	return nil
}

// writeTree writes files below a directory.
func writeTree(dir string, files []TreeFile) error {
	for _, f := range files {
		if err := f.write(filepath.Join(dir, f.Path)); err != nil {
			return fmt.Errorf("cannot write %s: %w", f.Path, err)
		}
	}
	return nil
}

func (f TreeFile) write(name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	// Replace an existing file instead of writing to it: it may be a hard link to an object in an
	// ostree repository.
	if err := os.RemoveAll(name); err != nil {
		return err
	}
	if f.Symlink != "" {
		return os.Symlink(f.Symlink, name)
	}
	content, err := f.content()
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, content, f.Mode); err != nil {
		return err
	}
	return os.Chmod(name, f.Mode) // regardless of the umask
}
