package containerruntime

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pinning"
)

// dropInDir is the directory of CRI-O's drop-ins, which are read in lexical order.
const dropInDir = "/etc/crio/crio.conf.d/"

// kubeletDropIns is the directory of kubelet's drop-ins. It merges those that end with .conf over its configuration, in
// lexical order.
const kubeletDropIns = pinning.KubeletConfigPath + ".d/"

// maxSuffix is the highest number in a name: "-10" would sort before "-2".
const maxSuffix = 9

// Changes reports whether settings may change the file at a path, or depend on it, so that Render needs it.
func Changes(path string) bool { return path == StoragePath || strings.HasPrefix(path, dropInDir) }

// Rendered is the MachineConfigs of a pool.
type Rendered struct {
	Manifests []authored.Manifest
	Warnings  []string
}

// Render renders one MachineConfig for each ContainerRuntimeConfig and KubeletConfig, which have numbers of their own. base is the files of the pool's
// rendered MachineConfig by path, as far as known. A setting in an existing file is changed in a
// copy of the file. Later ContainerRuntimeConfigs override earlier ones.
func (a Assigned) Render(base map[string][]byte) (Rendered, error) {
	var r Rendered
	var problems []error
	for _, kind := range []string{Kind, kindKubelet} {
		some := Assigned{a.Pool, slices.DeleteFunc(slices.Clone(a.Configs), func(c Config) bool { return c.kind != kind })}
		suffixes, err := some.suffixes()
		if err != nil {
			return Rendered{}, err
		}
		for i, c := range some.Configs {
			files, err := c.Settings.files(base)
			if err != nil {
				problems = append(problems, fmt.Errorf("cannot render %s %s for pool %s: %w", kind, c.Name, a.Pool, err))
				continue
			}
			for _, w := range overridden(files, base) {
				r.Warnings = append(r.Warnings, c.Name+": "+w)
			}
			r.Manifests = append(r.Manifests, authored.Manifest{Name: name(a.Pool, kind, suffixes[i]), Role: a.Pool, Files: files})
		}
	}
	return r, errors.Join(problems...)
}

// name returns the name of the MachineConfig of an object of a kind. suffix is the object's number in its pool.
func name(pool, kind string, suffix int) string {
	name := "99-" + pool + "-generated-containerruntime"
	if kind == kindKubelet {
		name = "99-" + pool + "-generated-kubelet"
	}
	if suffix > 0 {
		name += "-" + strconv.Itoa(suffix)
	}
	return name
}

// suffixes numbers the ContainerRuntimeConfigs of a pool. Existing numbers are kept; the others
// continue after the highest one. Lower numbers that are free are not reused, so that a newer one
// always takes precedence.
func (a Assigned) suffixes() ([]int, error) {
	numbers := make([]int, len(a.Configs))
	taken := map[int]string{}
	next := 0
	for i, c := range a.Configs {
		if c.suffix == nil {
			continue
		}
		n, err := strconv.Atoi("0" + *c.suffix)
		if err != nil || n > maxSuffix || *c.suffix == "0" {
			return nil, fmt.Errorf("cannot use %s %s: annotation %s is %q, not empty or 1 to %d", c.kind, c.Name, suffixAnnotation, *c.suffix, maxSuffix)
		}
		if other, twice := taken[n]; twice {
			return nil, fmt.Errorf("cannot use %ss %s and %s: annotation %s is %q in both", c.kind, other, c.Name, suffixAnnotation, *c.suffix)
		}
		numbers[i], taken[n], next = n, c.Name, max(next, n+1)
	}
	for i, c := range a.Configs {
		if c.suffix != nil {
			continue
		}
		if next > maxSuffix {
			return nil, fmt.Errorf("cannot use %s %s: max number of supported ctrcfgs (%d) has been reached for pool %s", c.kind, c.Name, maxSuffix+1, a.Pool)
		}
		numbers[i] = next
		next++
	}
	return numbers, nil
}

// files returns the files for the settings.
func (s Settings) files(base map[string][]byte) ([]hostfiles.File, error) {
	var files []hostfiles.File
	if s.OverlaySize != nil && s.OverlaySize.Sign() > 0 {
		storage, err := withSize(base[StoragePath], s.OverlaySize.String())
		if err != nil {
			return nil, err
		}
		files = append(files, hostfiles.NewFile(StoragePath, 0o644, storage))
	}
	if s.PodPidsLimit != nil {
		const text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodPidsLimit: %d\n"
		files = append(files, hostfiles.NewFile(kubeletDropIns+"01-kubeletconfig-podPidsLimit.conf", 0o644, fmt.Appendf(nil, text, *s.PodPidsLimit)))
	}
	for _, setting := range s.settings() {
		// One file for each setting, because MachineConfigs merge whole files.
		content, err := encode(map[string]any{"crio": map[string]any{"runtime": map[string]any{setting.key: setting.value}}})
		if err != nil {
			return nil, err
		}
		files = append(files, hostfiles.NewFile(dropInDir+"01-ctrcfg-"+setting.field, 0o644, content))
	}
	return files, nil
}

// setting is one key of CRI-O's configuration.
type setting struct {
	field, key string // names in the ContainerRuntimeConfig and in CRI-O's [crio.runtime]
	value      any
}

// settings returns the settings that are set, in the order that a cluster uses.
func (s Settings) settings() []setting {
	var all []setting
	if s.LogLevel != "" {
		all = append(all, setting{"logLevel", "log_level", s.LogLevel})
	}
	if s.PidsLimit != nil {
		all = append(all, setting{"pidsLimit", "pids_limit", *s.PidsLimit})
	}
	if s.LogSizeMax != nil && s.LogSizeMax.Sign() != 0 {
		all = append(all, setting{"logSizeMax", "log_size_max", s.LogSizeMax.Value()})
	}
	if s.DefaultRuntime != "" {
		all = append(all, setting{"defaultRuntime", "default_runtime", s.DefaultRuntime})
	}
	return all
}

// encode writes TOML like a cluster: sorted, indented by two spaces.
func encode(tree map[string]any) ([]byte, error) {
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.Indent = "  "
	err := e.Encode(tree)
	return b.Bytes(), err
}

// overridden returns warnings about drop-ins that CRI-O reads later and that set the same key.
func overridden(files []hostfiles.File, base map[string][]byte) []string {
	var found []string
	for _, f := range files {
		for _, path := range slices.Sorted(maps.Keys(base)) {
			if !strings.HasPrefix(path, dropInDir) || path <= f.Path || !strings.HasPrefix(f.Path, dropInDir) {
				continue
			}
			for _, key := range runtimeKeys(f.Content) {
				if slices.Contains(runtimeKeys(base[path]), key) {
					found = append(found, fmt.Sprintf("%s has no effect: %s, which CRI-O reads later, sets %s too", f.Path, path, key))
				}
			}
		}
	}
	return found
}

// runtimeKeys returns the keys that a drop-in sets in [crio.runtime].
func runtimeKeys(dropIn []byte) []string {
	var tree struct {
		Crio struct {
			Runtime map[string]any
		}
	}
	if _, err := toml.Decode(string(dropIn), &tree); err != nil {
		return nil // CRI-O will report it
	}
	return slices.Sorted(maps.Keys(tree.Crio.Runtime))
}
