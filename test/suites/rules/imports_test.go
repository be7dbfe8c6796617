package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// rule describes what a package may import.
type rule struct {
	ours    []string // allowed packages of this module, with those below them
	foreign bool     // whether other modules are allowed
	never   []string // forbidden packages, with those below them
}

var (
	all    = []string{""}
	values = []string{"fault", "problem", "kargs", "pinning", "hostfiles", "retry", "printable", "pid1"}

	processes   = []string{"os/exec"}
	commandLine = []string{"flag", "github.com/spf13"}
	world       = []string{"os", "net", "io/ioutil", "syscall", "golang.org/x/sys"}

	// oldIgnition is only needed to write MachineConfigs.
	oldIgnition = []string{"github.com/coreos/ignition/config", "github.com/coreos/ign-converter"}

	imageLibrary = []string{"go.podman.io", "github.com/docker"}
)

// importTable has a row for each package of the product, or for a package above it. docs/ describes
// the purpose of the packages. A new package needs a row.
var importTable = map[string]rule{
	// Values: they import mostly other values, and nothing of world.
	"fault":         {never: slices.Concat(processes, commandLine, world)},
	"api":           {ours: []string{"hostfiles"}, never: slices.Concat(processes, commandLine, []string{"net"})},
	"window":        {never: slices.Concat(processes, commandLine, world)},
	"pid1":          {foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},
	"retry":         {ours: []string{"fault"}, never: slices.Concat(processes, commandLine, world)},
	"printable":     {never: slices.Concat(processes, commandLine, world)},
	"problem":       {ours: []string{"fault"}, never: slices.Concat(processes, commandLine, world)},
	"kargs":         {ours: []string{"problem"}, never: slices.Concat(processes, commandLine, world)},
	"pinning":       {ours: []string{"fault", "kargs", "problem"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"pods":          {ours: []string{"sepolicy", "guard", "fault", "hostfiles", "pinning", "problem", "machineconfig/document"}, never: slices.Concat(processes, commandLine, []string{"net"})},
	"machineconfig": {ours: append([]string{"guard", "disruption", "machineconfig/document", "machineconfig/enable", "machineconfig/ignition", "osimage/imageref", "projection", "settings"}, values...), foreign: true, never: slices.Concat(processes, commandLine, world, oldIgnition)},
	"authored":      {ours: append([]string{"guard", "input", "machineconfig/document", "machineconfig", "machineconfig/ignition", "osimage/imageref"}, values...), foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},

	// Around MachineConfigs: first the packages that do not know MachineConfigs, then those that use
	// them, each for its own purpose.
	"machineconfig/enable":   {ours: []string{"hostfiles"}, never: slices.Concat(processes, commandLine, world)},
	"machineconfig/document": {ours: []string{"problem"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"machineconfig/ignition": {ours: []string{"guard", "problem", "machineconfig/document"}, foreign: true, never: slices.Concat(processes, commandLine, world, oldIgnition)},

	"update":        {ours: append([]string{"disruption", "authored", "machineconfig/ignition", "machineconfig"}, values...), foreign: true, never: slices.Concat(processes, commandLine, world)},
	"snapshot":      {ours: append([]string{"authored", "machineconfig/document", "machineconfig/ignition"}, values...), never: slices.Concat(processes, commandLine, []string{"os"})},
	"provision":     {ours: append([]string{"guard", "machineconfig", "authored", "systemd-units", "machineconfig/ignition", "machineconfig/document"}, values...), never: slices.Concat(processes, commandLine, []string{"os"})},
	"dracut":        {never: slices.Concat(processes, commandLine, world)},
	"systemd-units": {never: slices.Concat(processes, commandLine, world)},

	// Formats and storage: each usable without the rest.
	"inflate":   {never: slices.Concat(processes, commandLine, world)},
	"guard":     {ours: []string{"fault"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"os"})},
	"sepolicy":  {ours: []string{"guard", "hostfiles"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},
	"ostree":    {ours: []string{"fault", "hostfiles", "ostree", "inflate", "guard"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},
	"input":     {ours: []string{"fault", "problem"}, never: slices.Concat(processes, commandLine, []string{"net"})},
	"hostfiles": {ours: []string{"fault"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},

	"projection": {ours: []string{"sepolicy", "hostfiles"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},

	"osimage": {ours: []string{"sepolicy", "osimage", "hostfiles", "ostree", "fault", "guard", "kargs", "printable"}, foreign: true, never: slices.Concat(processes, commandLine, imageLibrary, []string{"os", "net"})},

	// The parts of osimage: how an image is named, where it comes from, what its layers contain. They
	// hardly import one another.
	"osimage/imageref":   {ours: []string{"fault"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"osimage/source":     {ours: []string{"osimage/imageref", "osimage/imagefault", "fault", "guard", "hostfiles", "inflate", "input", "retry", "printable"}, foreign: true, never: slices.Concat(processes, commandLine)},
	"osimage/layer":      {ours: []string{"sepolicy", "osimage/imagefault", "ostree", "hostfiles", "inflate", "fault", "guard", "printable"}, foreign: true, never: slices.Concat(processes, commandLine, imageLibrary, []string{"os", "net"})},
	"osimage/imagefault": {ours: []string{"fault"}, foreign: true, never: slices.Concat(processes, commandLine, imageLibrary, []string{"os", "net"})},

	// What a change means for running services.
	"disruption": {ours: []string{"machineconfig/document", "machineconfig/enable", "hostfiles", "problem", "systemd-units"}, foreign: true, never: slices.Concat(processes, commandLine, world)},

	// The core decides; the engines, the host and the reporter serve it.
	"pivot":     {ours: append([]string{"disruption", "ostree", "osimage/imageref", "machineconfig/enable", "projection", "verdict"}, values...), never: slices.Concat(processes, commandLine, []string{"net"})},
	"rpmostree": {ours: []string{"sepolicy", "ostree", "kargs", "fault", "hostfiles", "pivot", "host", "printable", "retry"}, foreign: true, never: commandLine},

	"settings":  {ours: []string{"fault", "hostfiles", "kargs", "verdict", "window"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net/http"})},
	"verdict":   {ours: []string{"fault"}, never: slices.Concat(processes, commandLine, world)},
	"host":      {ours: append([]string{"sepolicy", "osimage/imageref", "ostree", "pivot", "machineconfig/enable", "projection", "secureboot", "settings", "pid1"}, values...), foreign: true, never: commandLine},
	"initramfs": {ours: []string{"ostree", "kargs", "fault", "hostfiles", "pid1"}, foreign: true, never: slices.Concat(commandLine, []string{"net"})},
	"trial":     {ours: []string{"ostree", "fault", "hostfiles", "machine", "pivot", "retry", "rpmostree", "host", "settings", "systemd-units"}, never: slices.Concat(processes, commandLine, world)},
	"slot":      {ours: []string{"fault", "host", "hostfiles", "machine", "osimage/source", "pid1", "pivot", "retry", "settings", "systemd-units"}, never: slices.Concat(processes, commandLine)},
	"status":    {ours: []string{"pivot", "api", "fault", "hostfiles", "printable", "pid1"}, foreign: true, never: slices.Concat(processes, commandLine)},

	// Static pods for another kubelet than OpenShift's.

	// The images of a host: how the core gets them, and what they contain.
	"bootloader": {ours: []string{"fault", "hostfiles", "inflate", "ostree", "printable", "rehearse", "secureboot", "settings", "verdict"}, foreign: true, never: slices.Concat(commandLine, []string{"net"})},
	"rehearse":   {ours: []string{"dracut", "hostfiles", "kargs", "ostree", "printable", "systemd-units", "verdict"}, foreign: true, never: slices.Concat(commandLine, []string{"net"})},
	"identity":   {ours: []string{"fault", "machine", "pivot", "retry", "settings"}, foreign: true, never: slices.Concat(processes, commandLine)},
	"secureboot": {never: slices.Concat(processes, commandLine, []string{"net"})},
	"hostimages": {ours: []string{"guard", "fault", "host", "hostfiles", "kargs", "machineconfig/enable", "osimage", "ostree", "pivot", "printable", "retry", "settings"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},

	// What the first boot and day 2 share, and these two: neither imports the other.
	"machine":     {ours: []string{"api", "sepolicy", "bootloader", "disruption", "fault", "host", "hostfiles", "hostimages", "kargs", "machineconfig", "osimage", "ostree", "pinning", "pivot", "printable", "problem", "projection", "rehearse", "retry", "rpmostree", "secureboot", "settings", "status", "systemd-units", "verdict"}, never: slices.Concat(processes, commandLine, []string{"net"})},
	"rehearsal":   {ours: []string{"bootloader", "hostfiles", "machine", "machineconfig/enable", "ostree", "pivot", "rehearse", "secureboot", "settings", "verdict"}, never: slices.Concat(processes, commandLine, []string{"net"})},
	"day2":        {ours: []string{"sepolicy", "disruption", "fault", "guard", "host", "hostfiles", "hostimages", "kargs", "machine", "machineconfig/enable", "machineconfig", "osimage/imageref", "ostree", "pinning", "pivot", "problem", "projection", "rpmostree", "settings", "pid1"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},
	"maintenance": {ours: []string{"fault", "machine", "pivot", "window"}, never: slices.Concat(processes, commandLine, world)},
	"firstboot":   {ours: []string{"fault", "host", "hostfiles", "initramfs", "machine", "machineconfig", "pivot", "rpmostree", "settings"}, never: slices.Concat(processes, commandLine, []string{"net"})},
	"cmd/pivot":   {ours: all, foreign: true, never: processes},

	// The node agent: it runs pivot, and changes no machine itself. Nothing of it is linked into pivot,
	// and it has nothing of pivot's core: it knows the documents that pivot writes.
	"cluster/api":       {ours: []string{"printable"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"cluster/hostpivot": {ours: []string{"api", "fault", "hostfiles", "pid1"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},
	"cluster/node":      {ours: []string{"api", "cluster/api", "cluster/hostpivot", "fault", "pid1", "retry", "verdict"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"cluster/kube":      {ours: []string{"cluster/api", "cluster/node", "fault", "retry"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	// The fleet's controllers.
	"cluster/containerruntime": {ours: append([]string{"authored", "cluster/api", "machineconfig", "machineconfig/document"}, values...), foreign: true, never: slices.Concat(processes, commandLine, world)},
	"cluster/rollout":          {ours: []string{"cluster/api", "window"}, foreign: true, never: slices.Concat(processes, commandLine, world)},
	"cluster/view":             {ours: []string{"api", "authored", "cluster/api", "cluster/containerruntime", "disruption", "fault", "kargs", "machineconfig/document", "printable", "problem", "update"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"os"})},
	"cluster/render":           {ours: []string{"authored", "snapshot", "cluster/api", "cluster/containerruntime", "fault", "kargs", "machineconfig/ignition", "machineconfig", "problem"}, foreign: true, never: slices.Concat(processes, commandLine, world)},

	"cluster/follow":       {ours: []string{"authored", "cluster/api", "fault", "kargs", "machineconfig/ignition", "osimage", "osimage/imageref"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"net"})},
	"cluster/admission":    {ours: []string{"authored", "guard", "cluster/containerruntime", "cluster/api", "cluster/connect", "cluster/rollout", "fault", "input", "kargs", "machineconfig/ignition", "machineconfig", "pods", "problem", "window"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"os"})},
	"cluster/configserver": {ours: []string{"authored", "cluster/api", "cluster/connect", "fault", "kargs", "machineconfig/ignition", "machineconfig", "provision"}, foreign: true, never: slices.Concat(processes, commandLine, []string{"os"})},

	"cmd/pivot-fleet": {ours: []string{"guard", "cli", "cluster", "fault", "input"}, foreign: true, never: processes},

	// The programs of a cluster, and what they have in common: connect looks for kubelet's credentials.
	"cluster/connect": {ours: []string{"fault", "hostfiles", "input"}, foreign: true, never: slices.Concat(processes, []string{"net"})},
	"cmd/pivot-agent": {ours: []string{"guard", "cli", "cluster", "fault", "input"}, foreign: true, never: processes},

	"cmd/pivotctl": {ours: all, foreign: true, never: processes},
	"cli":          {ours: []string{"api", "fault", "input", "kargs", "printable", "pinning", "problem"}, foreign: true, never: slices.Concat(processes, []string{"net"})},
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		if p.underTest() {
			continue // they may import anything, and forbids keeps the product from importing them
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

// TestPackagesAreDescribed checks that each package of the product has a comment: docs/dev/architecture.md shows how to list them.
func TestPackagesAreDescribed(t *testing.T) {
	for _, p := range packages(t) {
		if !p.underTest() && p.Doc == "" {
			t.Errorf("package %s has no comment that says what it is for", p.short())
		}
	}
}

// TestImportsAreUsed checks that each permission in the table is used, because an unused one would
// later allow imports that the table is meant to prevent.
func TestImportsAreUsed(t *testing.T) {
	used := map[string][]string{} // imports, by row
	for _, p := range packages(t) {
		if !p.underTest() {
			name := row(p.short())
			used[name] = append(used[name], p.Imports...)
		}
	}
	for name, r := range importTable {
		imports, there := used[name]
		if !there {
			t.Errorf("the import table has a row %s, and there is no such package", name)
			continue
		}
		for _, permission := range r.unused(imports) {
			t.Errorf("package %s may import %s, and does not", name, permission)
		}
	}
}

// unused returns the permissions of a row that its imports do not use. All values together count as
// one permission, and so does all.
func (r rule) unused(imports []string) (permissions []string) {
	var ours, foreign []string
	for _, imported := range imports {
		if strings.HasPrefix(imported, module+"/") {
			ours = append(ours, short(imported))
		} else if isForeign(imported) {
			foreign = append(foreign, imported)
		}
	}
	uses := func(trees ...string) bool {
		return slices.ContainsFunc(ours, func(path string) bool { return within(path, trees) })
	}
	allValues := !slices.ContainsFunc(values, func(value string) bool { return !slices.Contains(r.ours, value) })
	if allValues && !uses(values...) {
		permissions = append(permissions, "values")
	}
	for _, allowed := range r.ours {
		switch {
		case allValues && slices.Contains(values, allowed):
		case slices.Equal(r.ours, all) && len(ours) == 0:
			permissions = append(permissions, "everything of ours")
		case !slices.Equal(r.ours, all) && !uses(allowed):
			permissions = append(permissions, allowed)
		}
	}
	if r.foreign && len(foreign) == 0 {
		permissions = append(permissions, "modules of others")
	}
	return permissions
}

// row returns the key in the table for a package: its own name or that of the nearest package above it.
func row(name string) string {
	for name != "" {
		if _, ok := importTable[name]; ok {
			break
		}
		name = name[:max(strings.LastIndexByte(name, '/'), 0)]
	}
	return name
}

// forbids returns why an import is not allowed, or "" if it is.
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
	if isForeign(imported) && !r.foreign {
		return "only the standard library may be"
	}
	return ""
}

// isForeign reports whether an import is from another module and not from the standard library: its
// path begins with a domain.
func isForeign(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return strings.Contains(first, ".")
}

// within reports whether path is one of the trees or is below one.
func within(path string, trees []string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool {
		return path == tree || strings.HasPrefix(path, tree+"/")
	})
}
