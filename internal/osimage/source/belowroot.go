package source

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// root returns the host's root directory.
func (h *Host) root() string { return filepath.Clean(cmp.Or(h.Root, "/")) }

// shown returns the name of one of the host's files for messages. It is not for reading the file, because
// it may have symbolic links.
func (h *Host) shown(name string) string { return filepath.Join(h.root(), name) }

// path returns where one of the host's files is: below its root directory, also behind symbolic links that are
// absolute, which the kernel would follow out of the root.
func (h *Host) path(name string) (string, error) { return hostfiles.Locate(h.root(), name) }

// place is path for a path that begins with the host's root directory already, as the library makes them.
// Other paths are returned unchanged.
func (h *Host) place(name string) (string, error) {
	below, ok := strings.CutPrefix(name, h.root()+"/")
	if !ok || h.root() == "/" {
		return name, nil
	}
	return h.path("/" + below)
}

// exists reports whether there is something at one of the library's paths, be it a link to nothing.
func (h *Host) exists(name string) (bool, error) {
	dir, err := h.place(filepath.Dir(name))
	if err != nil {
		return false, err
	}
	_, err = os.Lstat(filepath.Join(dir, filepath.Base(name)))
	return !errors.Is(err, fs.ErrNotExist), nil
}

// readFile reads a file at one of the library's paths.
func (h *Host) readFile(name string) ([]byte, error) {
	at, err := h.place(name)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(at)
}

// readDropIn is readFile for a file of a directory in which others put files.
func (h *Host) readDropIn(name string) ([]byte, error) {
	at, err := h.place(name)
	if err != nil {
		return nil, err
	}
	text, err := hostfiles.ReadDropIn("/", at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// first returns the place of the first of the library's paths that exists, or "".
func (h *Host) first(names []string) (string, error) {
	for _, name := range names {
		at, err := h.place(name)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			return at, nil
		}
	}
	return "", nil
}

// context returns the library's settings for the host. The library opens its configuration by itself and knows nothing
// of links that are absolute. So pivot tells it where registries.conf is. The paths of the directories beside it cannot
// be passed one by one. A link among their files is an error if the library would read another file than the host.
func (h *Host) context() (*types.SystemContext, error) {
	sys := &types.SystemContext{DockerRegistryUserAgent: "pivot", ArchitectureChoice: h.Architecture}
	if h.root() != "/" {
		sys.RootForImplicitAbsolutePaths = h.root()
	}
	main := h.search("registries", "conf")
	main.EnvironmentName = "CONTAINERS_REGISTRIES_CONF"
	paths, err := configfile.GetSearchPaths(main)
	if err != nil {
		return nil, err
	}
	if h.root() != "/" && os.Getenv(main.EnvironmentName) == "" {
		found, err := h.first(paths.MainFiles)
		if err != nil {
			return nil, err
		}
		sys.SystemRegistriesConfPath = cmp.Or(found, noRegistriesConf)
	}
	if err := h.checkDropIns(paths.DropInDirectories, ".conf"); err != nil {
		return nil, err
	}
	signatures := h.search("registries", "yaml")
	signatures.DoNotUseExtensionForConfigName = true
	if paths, err = configfile.GetSearchPaths(signatures); err != nil {
		return nil, err
	}
	return sys, h.checkDropIns(paths.DropInDirectories, ".yaml")
}

// search describes a file of configuration, for which the library looks at several paths.
func (h *Host) search(name, extension string) *configfile.File {
	f := &configfile.File{Name: name, Extension: extension, UserId: os.Geteuid()}
	if h.root() != "/" {
		f.RootForImplicitAbsolutePaths = h.root()
	}
	return f
}

// checkDropIns returns an error if a directory of files with a suffix, or one of these files, leads the library out of
// the root by a link. It does so for what is no file, too: the library would open it, and wait at a pipe.
func (h *Host) checkDropIns(dirs []string, suffix string) error {
	for _, dir := range dirs {
		if err := h.checkWay(dir); err != nil {
			return err
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && h.root() != "/" { // there, the library says what is wrong
			return err
		}
		for _, entry := range entries {
			if !strings.HasSuffix(entry.Name(), suffix) {
				continue
			}
			name := filepath.Join(dir, entry.Name())
			if err := h.checkWay(name); err != nil {
				return err
			}
			if _, err := h.readDropIn(name); errors.Is(err, hostfiles.ErrNotRegular) && !entry.IsDir() {
				return err
			}
		}
	}
	return nil
}

// checkWay returns an error unless the kernel finds the same at one of the library's paths as the host would.
func (h *Host) checkWay(name string) error {
	if h.root() == "/" {
		return nil
	}
	at, err := h.place(name)
	if err != nil {
		return err
	}
	of, err := real(at)
	if err != nil {
		return err
	}
	if by, err := real(name); err != nil || by != of {
		return fault.New(fault.Refused, "cannot read %s: an absolute symbolic link points outside of %s", name, h.root()).
			WithHint("make the link relative (ln -sr), or put the file itself there")
	}
	return nil
}

// real returns a path without symbolic links, or "" if there is no such file.
func real(name string) (string, error) {
	found, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return found, err
}
