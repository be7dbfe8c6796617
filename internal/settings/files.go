package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// dirs returns the directories in which a file with settings can be. Of files with the same
// name, the one in the first directory counts.
func dirs() []string { return []string{"/etc/pivot", "/run/pivot", "/usr/lib/pivot"} }

// maxSettings limits the size of all files with settings together, in bytes.
const maxSettings = 1 << 20

// machine is the root directory of a machine.
type machine string

// path returns the path of a file of the machine.
func (m machine) path(name string) string { return filepath.Join(string(m), name) }

// file is a file with settings, for paths of the machine.
type file struct{ path, text string }

// files returns the files with settings in their order, as systemd reads its own (systemd-system.conf(5)):
// firstboot.conf, then the files *.conf in the directories firstboot.conf.d, sorted by name over all directories. An
// empty file, or a link to /dev/null, hides the files of its name in later directories. The error names each file that
// cannot be read.
func (m machine) files() (files []file, err error) {
	base := path.Base(Path)
	paths := m.mainFile(base)
	dropIns := map[string]string{}
	for _, dir := range slices.Backward(dirs()) {
		dir = path.Join(dir, base+".d")
		if !m.isThere(dir) {
			continue
		}
		names, failed := os.ReadDir(m.path(dir))
		err = errors.Join(err, failed)
		for _, file := range names {
			if name := file.Name(); isDropIn(name) {
				dropIns[name] = path.Join(dir, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		paths = append(paths, dropIns[name])
	}
	size := 0
	for _, path := range paths {
		text, failed := m.read(path)
		if size += len(text); size > maxSettings {
			return files, fault.New(fault.BadInput, "the files with settings have more than %d bytes together, with %s", maxSettings, path).
				WithHint("shorten %s, or remove it", path)
		}
		err = errors.Join(err, failed)
		files = append(files, file{path, string(text)})
	}
	return files, err
}

// isDropIn reports whether a file with this name in a directory firstboot.conf.d has settings.
func isDropIn(name string) bool {
	return strings.HasSuffix(name, ".conf") && !strings.HasPrefix(name, ".")
}

// IsFile reports whether a file at this path below /etc has settings.
func IsFile(name string) bool {
	return name == Path || path.Dir(name) == Path+".d" && isDropIn(path.Base(name))
}

// mainFile returns the path of the file of this name in the first directory that has it, if any.
func (m machine) mainFile(name string) []string {
	for _, dir := range dirs() {
		if file := path.Join(dir, name); m.isThere(file) {
			return []string{file}
		}
	}
	return nil
}

// isThere reports whether a path may exist: it does not if a directory on the way is none.
func (m machine) isThere(name string) bool {
	_, err := os.Lstat(m.path(name))
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR)
}

// read reads a file.
func (m machine) read(name string) ([]byte, error) {
	data, err := hostfiles.ReadDropIn(string(m), name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// unreadable returns the error for settings that cannot be read.
func unreadable(err error) error {
	err = fmt.Errorf("cannot read the settings: %w", err)
	if fault.KindOf(err) == fault.Internal && !errors.Is(err, fs.ErrPermission) {
		err = fault.New(fault.BadInput, "%w", err) // not what an administrator's files are
	}
	return err
}
