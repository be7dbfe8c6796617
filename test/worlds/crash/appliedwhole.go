package crash

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/projection"
)

// wholeApplied checks that a system has the /etc of exactly one MachineConfig, and its carriers.
func (m *Machine) wholeApplied(root string) error {
	isB := strings.HasPrefix(filepath.Base(root), commitB)
	want, name, carries, hash := maps.Clone(etcA), "first", varA, "$6$first"
	if isB {
		maps.Copy(want, etcB)
		name, carries, hash = "second", varB, "$6$second"
		for path, content := range pinningFiles() {
			want[path] = shown(fmt.Sprintf("file %o 0 %s", pinningMode, content))
		}
		want[machineconfig.LeftOutPath] = "file 644 0 [\n  \"config.passwd.groups\"\n]\n"
	}
	want["/etc/local"], want["/etc/shadow"] = "file 644 0 a change of this machine\n", shown("file 600 0 "+shadowWith(hash))
	want["/etc/untouched"] = shown("file 644 0 " + imageHas(filepath.Base(root)))
	have := describe(root, "/etc")
	if record := have[machineconfig.RecordPath]; !strings.HasPrefix(string(record), "file 600 0 ") || !strings.Contains(string(record), `"name":"`+name+`"`) {
		return fmt.Errorf("a mixture: %.1s has the record %.90s…", filepath.Base(root), record)
	}
	delete(have, machineconfig.RecordPath)
	want[projection.Dir] = "directory 700 0"
	maps.DeleteFunc(have, func(path string, _ shown) bool { return strings.HasPrefix(path, projection.Dir+"/") })
	return errors.Join(m.wholeArguments(root, isB), carriedBy(root, carries), differ(filepath.Base(root)[:1], have, want))
}

// wholeArguments checks that a system has the kernel arguments of its MachineConfig and its image,
// and not those of the other. The arguments of the second MachineConfig are checked by whole.
func (m *Machine) wholeArguments(root string, isB bool) error {
	d, err := m.entryOf(root)
	for arg, wanted := range map[string]bool{"first=1": !isB, m.applying.brings(commitA): !isB, m.applying.brings(commitB): isB} {
		if err == nil && strings.Contains(d.Entry.Options, arg) != wanted {
			err = fmt.Errorf("a mixture: %.1s has the arguments %q", filepath.Base(root), d.Entry.Options)
		}
	}
	return err
}

// carriedBy returns an error unless a system carries exactly the wanted entries of /var.
func carriedBy(root string, want map[string]shown) error {
	set, err := projection.Read(root)
	files := 0
	for _, e := range set.Entries {
		if e.Kind != hostfiles.KindFile {
			continue
		}
		files++
		content, err := os.ReadFile(root + projection.ContentPath(e.Digest))
		if text := string(want[e.Path]); err != nil || text == "" || !strings.HasSuffix(text, " "+string(content)) {
			return fmt.Errorf("a mixture: %.1s carries %q for %s (%v)", filepath.Base(root), content, e.Path, err)
		}
	}
	if err == nil && files != 3 {
		err = fmt.Errorf("a mixture: %.1s carries %v", filepath.Base(root), set.Entries)
	}
	return err
}

// wholeVar checks that /var is as the running system demands.
func (m *Machine) wholeVar() error {
	want := maps.Clone(ownVar)
	maps.Copy(want, keys)
	if m.runs(commitB) {
		maps.Copy(want, varB)
	} else {
		maps.Copy(want, varA)
	}
	have := describe(filepath.Join(m.dir, stateroot), "/var")
	maps.DeleteFunc(have, func(path string, _ shown) bool {
		return path == "/var/lib/pivot" || strings.HasPrefix(path, "/var/lib/pivot/")
	})
	return differ("/var while "+filepath.Base(m.root)[:1]+" runs", have, want)
}

// differ returns an error if the entries differ from the wanted ones, apart from parent directories
// with mode 0755 and owner root.
func differ(what string, have, want map[string]shown) error {
	for path, w := range want {
		if have[path] != w {
			return fmt.Errorf("a mixture: %s has %s as %q, want %q", what, path, have[path], w)
		}
		delete(have, path)
	}
	for path, h := range have {
		above := h == "directory 755 0" && slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(p string) bool { return strings.HasPrefix(p, path+"/") && want[p] != "" })
		if !above {
			return fmt.Errorf("a mixture: %s has %s as %q too", what, path, h)
		}
	}
	return nil
}
