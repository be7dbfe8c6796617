package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// rule says what one package may import.
type rule struct {
	ours    []string // our packages; those below them too
	foreign bool     // modules of others
	never   []string // packages, of the standard library or not, and those below them
}

var (
	all    = []string{""}
	values = []string{"fault", "kargs", "pinning", "hostfiles", "retry", "printable"}

	processes   = []string{"os/exec"}
	commandLine = []string{"flag", "github.com/spf13"}
	world       = []string{"os", "net", "io/ioutil", "syscall", "golang.org/x/sys"}

	// aroundConfig do not know one another; cmd/pivotctl puts them together.
	aroundConfig = []string{module + "/internal/author/installconfig", module + "/internal/author/snapshot", module + "/internal/author/pool", module + "/internal/author/serve"}

	// oldIgnition is what only those who write MachineConfigs need.
	oldIgnition = []string{"github.com/coreos/ignition/config", "github.com/coreos/ign-converter"}

	imageLibrary = []string{"go.podman.io", "github.com/docker"}
)

// importTable has a row for each package that is part of the product. What the
// packages are for is in docs/; a package that is not here yet needs a row first.
var importTable = map[string]rule{
	// Values: no package of ours beyond values, and nothing of the world.
	"fault":            {never: slices.Concat(processes, commandLine, world)},
	"api":              {never: slices.Concat(processes, commandLine, world)},
	"retry":            {never: slices.Concat(processes, commandLine, world)},
	"printable":        {never: slices.Concat(processes, commandLine, world)},
	"kargs":            {never: slices.Concat(processes, commandLine, world)},
	"quantity":         {never: slices.Concat(processes, commandLine, world)},
	"pinning":          {ours: []string{"kargs"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"pods":             {ours: []string{"pinning", "quantity"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"encapsulated":     {ours: append([]string{"machineconfig/document", "machineconfig/ignition", "machineconfig/jsonpath", "machineconfig/spec"}, values...), foreign: true, never: slices.Concat(processes, commandLine, world, oldIgnition)},
	"machineconfig":    {ours: append([]string{"legacy", "machineconfig/document", "machineconfig/ignition", "machineconfig/jsonpath", "machineconfig/spec"}, values...), foreign: true, never: slices.Concat(processes, commandLine, world)},
	"containerruntime": {ours: append([]string{"machineconfig", "quantity"}, values...), foreign: true, never: slices.Concat(processes, commandLine, world)},

	// Around MachineConfigs: below, what knows none; above, each its own part of the world.
	"machineconfig/jsonpath": {never: slices.Concat(processes, commandLine, world)},
	"machineconfig/document": {ours: []string{"fault", "machineconfig/jsonpath"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"machineconfig/spec":     {ours: []string{"kargs", "machineconfig/document", "machineconfig/jsonpath"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"machineconfig/ignition": {ours: []string{"machineconfig/jsonpath"}, foreign: true, never: slices.Concat(processes, commandLine, world, oldIgnition)},

	"legacy": {ours: []string{"machineconfig/ignition", "machineconfig/jsonpath"}, foreign: true, never: slices.Concat(processes, commandLine, world)},

	"installconfig": {ours: append([]string{"machineconfig"}, values...), foreign: true, never: slices.Concat(processes, commandLine, aroundConfig, world)},
	"snapshot":      {ours: append([]string{"legacy", "machineconfig"}, values...), foreign: true, never: slices.Concat(processes, commandLine, aroundConfig, []string{"os"})},
	"provision":     {ours: append([]string{"encapsulated", "legacy", "machineconfig", "systemd-units"}, values...), foreign: true, never: slices.Concat(processes, commandLine, aroundConfig, world)},
	"pool":          {ours: append([]string{"machineconfig"}, values...), foreign: true, never: slices.Concat(processes, commandLine, aroundConfig, []string{"net"})},
	"serve":         {ours: append([]string{"legacy", "machineconfig", "provision"}, values...), foreign: true, never: slices.Concat(processes, commandLine, aroundConfig, []string{"os"})},
	"systemd-units": {never: slices.Concat(processes, commandLine, world)},

	// Formats and places: each usable without the rest.
	"inflate":   {never: slices.Concat(processes, commandLine, world)},
	"guard":     {ours: []string{"fault"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"selinux":   {foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},
	"ostree":    {ours: []string{"ostree", "inflate", "guard", "selinux"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},
	"hostfiles": {ours: []string{"fault", "selinux"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},
	"osimage":   {ours: []string{"osimage", "selinux", "ostree", "fault", "guard", "kargs"}, foreign: true, never: slices.Concat(processes, commandLine, imageLibrary, []string{"os", "net"})},

	// The rooms of osimage: how an image is named, where it comes from, what a layer
	// holds. They know nothing of one another but the name.
	"osimage/imageref":         {ours: []string{"fault"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"osimage/source":           {ours: []string{"osimage/source/ocilayout", "osimage/imageref", "osimage/imagefault", "fault", "retry", "printable"}, foreign: true, never: slices.Concat(processes, commandLine)},
	"osimage/source/ocilayout": {ours: []string{"osimage/imagefault"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},
	"osimage/layer":            {ours: []string{"osimage/merge", "osimage/imagefault", "ostree", "inflate", "fault", "guard", "printable"}, foreign: true, never: slices.Concat(processes, commandLine, imageLibrary, []string{"os", "net"})},
	"osimage/merge":            {ours: []string{"osimage/imagefault", "ostree", "selinux", "fault", "guard"}, foreign: true, never: slices.Concat(processes, commandLine, imageLibrary, []string{"os", "net"})},
	"osimage/kargsd":           {ours: []string{"ostree", "kargs", "fault"}, foreign: true, never: slices.Concat(processes, commandLine, imageLibrary, []string{"os", "net"})},
	"osimage/imagefault":       {ours: []string{"fault"}, foreign: true, never: slices.Concat(processes, commandLine, imageLibrary, []string{"os", "net"})},

	// The core decides; the engines, the host and the reporter serve it.
	"pivot":     {ours: append([]string{"ostree"}, values...), never: slices.Concat(processes, commandLine, []string{"net"})},
	"rpmostree": {ours: []string{"ostree", "selinux", "kargs", "fault", "hostfiles", "pivot", "host"}, foreign: true, never: commandLine},
	"host":      {ours: append([]string{"ostree", "pivot"}, values...), foreign: true, never: commandLine},
	"initramfs": {ours: []string{"ostree", "kargs", "fault", "hostfiles"}, foreign: true, never: slices.Concat(commandLine, []string{"net"})},
	"status":    {ours: []string{"pivot", "api", "fault", "hostfiles", "printable"}, foreign: true, never: slices.Concat(processes, commandLine)},

	"firstboot": {ours: all, never: slices.Concat(processes, commandLine, []string{"net"})},
	"cmd/pivot": {ours: all, foreign: true, never: processes},

	"cmd/pivotctl": {ours: all, foreign: true, never: processes},
	"cli":          {ours: []string{"api", "fault", "printable", "pinning"}, foreign: true, never: slices.Concat(processes, []string{"net"})},
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		if p.underTest() {
			continue // no row allows them to be imported
		}
		r, ok := importTable[row(p.short())]
		if !ok {
			t.Errorf("package %s has no row in the import table: say there what it may import", p.short())
			continue
		}
		for _, imported := range p.Imports {
			if why := r.forbids(imported); why != "" {
				t.Errorf("package %s imports %s: %s", p.short(), imported, why)
			}
		}
	}
}

// TestImportsAreUsed: a permission that nobody uses would let in tomorrow what the
// table was made to keep out.
func TestImportsAreUsed(t *testing.T) {
	used := map[string][]string{} // imports of ours, by row
	for _, p := range packages(t) {
		name := row(p.short())
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module+"/") && !p.underTest() {
				used[name] = append(used[name], short(imported))
			}
		}
	}
	for name, r := range importTable {
		for _, allowed := range r.ours {
			if !slices.Equal(r.ours, all) && !slices.Contains(values, allowed) && !slices.ContainsFunc(used[name], func(path string) bool { return within(path, []string{allowed}) }) {
				t.Errorf("package %s may import %s, and does not", name, allowed)
			}
		}
	}
}

// row is the key of the table for a package: its own or that of the nearest
// package above it.
func row(name string) string {
	for name != "" {
		if _, ok := importTable[name]; ok {
			break
		}
		name = name[:max(strings.LastIndexByte(name, '/'), 0)]
	}
	return name
}

// forbids says why the import is not allowed, or nothing.
func (r rule) forbids(imported string) string {
	if within(imported, r.never) {
		return "never allowed here"
	}
	if _, ours := strings.CutPrefix(imported, module+"/"); ours {
		name := short(imported)
		switch {
		case strings.HasPrefix(name, "test/"):
			return "made for tests"
		case slices.Equal(r.ours, all), within(name, r.ours):
			return ""
		}
		return fmt.Sprintf("of our packages it may import %q", r.ours)
	}
	if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") && !r.foreign {
		return "only the standard library may be"
	}
	return ""
}

// within reports whether path is one of the trees or below one.
func within(path string, trees []string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool {
		return path == tree || strings.HasPrefix(path, tree+"/")
	})
}
