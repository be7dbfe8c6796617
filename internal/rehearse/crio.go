package rehearse

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
)

const crioDir = "/etc/crio"

// crioSettings are the settings of CRI-O (crio.conf(5)) that name the program by which it runs containers.
type crioSettings struct {
	Crio struct {
		Runtime struct {
			Default  string `toml:"default_runtime"`
			Runtimes map[string]struct {
				Path string `toml:"runtime_path"`
			} `toml:"runtimes"`
		} `toml:"runtime"`
	} `toml:"crio"`
}

// runtimes warns if files of the machine change CRI-O's settings, and the new system does not have the program by which CRI-O
// then runs containers.
func (i image) runtimes(o Own) subject {
	own := o.below(crioDir)
	if len(own) == 0 {
		return subject{judge: nothing}
	}
	return subject{judge: func(context.Context, []ending) ([]verdict.Finding, error) {
		settings, err := i.crioSettings(own)
		name := settings.Crio.Runtime.Default
		if err != nil || name == "" {
			return nil, err
		}
		program := settings.Crio.Runtime.Runtimes[name].Path
		has, err := i.hasRuntime(program, name)
		if has || err != nil {
			return nil, err
		}
		return []verdict.Finding{{Name: "cri-o", Weight: verdict.Warned, Text: fmt.Sprintf("CRI-O's default_runtime on this machine is %s (%s), which the new system does not have: no pod would start",
			printable.Line(name), printable.Line(cmp.Or(program, "in no directory of programs")))}}, nil
	}}
}

// crioSettings returns the settings of the next boot: those of the image's files, and of the machine's own in their place.
func (i image) crioSettings(own map[string]File) (s crioSettings, err error) {
	const main, more = "usr/etc/crio/crio.conf", "usr/etc/crio/crio.conf.d"
	names, err := i.repo.Names(i.commit, more)
	if err != nil {
		return s, err
	}
	files := map[string]bool{main: true}
	for _, name := range names {
		files[path.Join(more, name)] = true
	}
	for name := range own {
		files[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(files)) { // crio.conf is before crio.conf.d/
		text, isOwn := string(own[name].Content), own[name].Content != nil
		if !isOwn {
			if text, err = i.text(name); err != nil {
				return s, err
			}
		}
		if _, err := toml.Decode(text, &s); err != nil {
			return s, fmt.Errorf("cannot read CRI-O's settings in /%s: %w", strings.TrimPrefix(name, "usr/"), err)
		}
	}
	return s, nil
}

// hasRuntime reports whether the image has a runtime: at its path, or without one in a directory of programs. What is outside
// of /usr, or in /usr/local, is not the image's.
func (i image) hasRuntime(program, name string) (has bool, err error) {
	candidates := []string{program}
	if program == "" {
		candidates = []string{"/usr/bin/" + name, "/usr/sbin/" + name, "/usr/libexec/crio/" + name}
	}
	for _, at := range candidates {
		at = path.Clean(at)
		if !strings.HasPrefix(at, "/usr/") && !strings.HasPrefix(at, "/bin/") && !strings.HasPrefix(at, "/sbin/") || strings.HasPrefix(at, "/usr/local/") {
			return true, nil
		}
		if _, found, err := i.repo.Resolve(i.commit, strings.TrimPrefix(at, "/")); found || err != nil {
			return found, err
		}
	}
	return false, nil
}
