package authored

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// Overruled warns about each setting of a MachineConfig that does not win over that of one with an earlier name, when Merge
// merges them. Readers expect that the later name wins, as it does for all else.
func Overruled(all []*MachineConfig) problem.Report {
	o := overruling{settings: map[string]setting{}, masks: map[string]*MachineConfig{}, said: map[string]bool{}}
	sorted := inOrder(all)
	for _, mc := range sorted {
		o.add(mc)
	}
	o.arguments(sorted)
	return o.report
}

// inOrder returns MachineConfigs in the order in which they are merged.
func inOrder(all []*MachineConfig) []*MachineConfig {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b *MachineConfig) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// overruling is what the MachineConfigs so far have set.
type overruling struct {
	report             problem.Report
	fips, kernel       *MachineConfig            // that have set FIPS mode, and another kernel
	images, extensions *MachineConfig            // that have named images
	settings           map[string]setting        // members of files, directories, links, units and users
	masks              map[string]*MachineConfig // by the name of the unit that is masked
	said               map[string]bool           // the warnings so far
}

// setting is what the last MachineConfig has set.
type setting struct {
	mc *MachineConfig
	is any
}

func (o *overruling) add(mc *MachineConfig) {
	s := mc.Spec
	switch {
	case s.FIPS:
		o.fips = mc
	case mc.deniesFIPS && o.fips != nil:
		o.warn("$.spec.fips", mc, "fips: false", o.fips, "it is true if any MachineConfig has true")
	}
	switch {
	case s.KernelType == machineconfig.KernelRealtime || s.KernelType == machineconfig.Kernel64k:
		if o.kernel != nil && o.kernel.Spec.KernelType != s.KernelType {
			o.role("$.spec.kernelType", o.kernel.Spec.KernelType, o.kernel, mc)
		}
		o.kernel = mc
	case s.KernelType != "" && o.kernel != nil && !mc.generated():
		o.warn("$.spec.kernelType", mc, "kernelType: "+s.KernelType, o.kernel, "it is the last one that is not the default")
	}
	o.image("$.spec.osImageURL", mc, &o.images, func(s machineconfig.Spec) string { return s.OSImageURL.String() })
	o.image("$.spec.baseOSExtensionsContainerImage", mc, &o.extensions, func(s machineconfig.Spec) string { return s.ExtensionsImage.String() })
	o.config(mc)
}

// image notes that a MachineConfig names an image, unless a controller has made it: then the image does not count.
func (o *overruling) image(path string, mc *MachineConfig, last **MachineConfig, of func(machineconfig.Spec) string) {
	switch name := of(mc.Spec); {
	case name == "":
	case !mc.generated():
		if *last != nil && of((*last).Spec) != name {
			o.role(path, of((*last).Spec), *last, mc)
		}
		*last = mc
	case *last != nil && of((*last).Spec) != name:
		o.warn(path, mc, name, *last, "the image of a MachineConfig that a controller has made does not count")
	}
}

// config notes the files, directories, links, units and users of a MachineConfig. Merge overrides each member of them on its
// own, so that two MachineConfigs may set other members of one file or unit.
func (o *overruling) config(mc *MachineConfig) {
	if mc.Spec.Config == nil {
		return
	}
	c := mc.Spec.Config
	node := func(list string, n types.Node, members ...any) {
		o.set("$.spec.config.storage."+list, n.Path, mc, append(members, list, n.User, n.Group)...)
	}
	for _, f := range c.Storage.Files {
		node("files", f.Node, "files", f.Contents, f.Mode)
	}
	for _, d := range c.Storage.Directories {
		node("directories", d.Node, "directories", nil, d.Mode)
	}
	for _, l := range c.Storage.Links {
		node("links", l.Node, "links", l.Target, l.Hard)
	}
	for _, u := range c.Passwd.Users {
		o.set("$.spec.config.passwd.users", u.Name, mc, u.PasswordHash)
	}
	for _, u := range c.Systemd.Units {
		o.unit(mc, u)
	}
}

// unit notes a unit of a MachineConfig.
func (o *overruling) unit(mc *MachineConfig, u types.Unit) {
	const path = "$.spec.config.systemd.units"
	o.set(path, u.Name, mc, u.Contents, u.Enabled, u.Mask)
	changed := u.Contents != nil || u.Enabled != nil && *u.Enabled
	for _, d := range u.Dropins {
		o.set(path, u.Name+"/"+d.Name, mc, d.Contents)
		changed = changed || d.Contents != nil
	}
	switch by := o.masks[u.Name]; {
	case u.Mask != nil && *u.Mask:
		o.masks[u.Name] = mc
	case u.Mask != nil:
		delete(o.masks, u.Name)
	case by != nil && changed:
		o.warn(path, mc, u.Name, by, "it stays masked without mask: false")
	}
}

// set notes the members that a MachineConfig sets of what has a name, in the order that they have in each call for it.
func (o *overruling) set(path, name string, mc *MachineConfig, members ...any) {
	for i, is := range members {
		if v := reflect.ValueOf(is); !v.IsValid() || v.IsZero() {
			continue // it keeps what another one sets
		}
		key := fmt.Sprint(name, "\x00", i)
		if last, again := o.settings[key]; again && !reflect.DeepEqual(last.is, is) {
			o.role(path, name, last.mc, mc)
		}
		o.settings[key] = setting{mc, is}
	}
}

// role warns if a MachineConfig overrides one that has a later name, because that is of the role worker.
func (o *overruling) role(path, has string, last, mc *MachineConfig) {
	if last.Name > mc.Name {
		o.warn(path, last, has, mc, "those of the role "+mc.Role()+" override those of worker, whatever their names")
	}
}

// arguments warns about arguments that the kernel ignores because of one of a MachineConfig with an earlier name.
func (o *overruling) arguments(sorted []*MachineConfig) {
	var line kargs.Line
	var of []*MachineConfig // each argument's
	for _, entries := range []func(machineconfig.Spec) []string{
		func(s machineconfig.Spec) []string { return s.KernelArguments },
		func(s machineconfig.Spec) []string { return s.Arguments()[len(s.KernelArguments):] },
	} {
		for _, mc := range sorted {
			for _, argument := range machineconfig.CommandLine(entries(mc.Spec)) {
				line, of = append(line, argument), append(of, mc)
			}
		}
	}
	ignored := line.Ignored()
	for i, argument := range line {
		at, is := ignored[i]
		switch {
		case !is || of[i].Name <= of[at].Name:
		case at < i:
			o.warn("$.spec.kernelArguments", of[i], argument, of[at], "the kernel takes the first one, of huge pages that of each size, or the stronger one")
		case rank(of[at]) > rank(of[i]):
			o.role("$.spec.kernelArguments", argument, of[i], of[at])
		default:
			o.warn("$.spec.kernelArguments", of[i], argument, of[at], "Ignition's shouldExist comes after spec.kernelArguments")
		}
	}
	added := map[string]*MachineConfig{}
	for _, mc := range sorted {
		if mc.Spec.Config != nil {
			for _, no := range mc.Spec.Config.KernelArguments.ShouldNotExist {
				if by := added[string(no)]; by != nil {
					o.warn("$.spec.config.kernelArguments.shouldNotExist", mc, string(no), by, "what any MachineConfig adds is there")
				}
			}
		}
		for _, argument := range machineconfig.CommandLine(mc.Spec.Arguments()) {
			added[argument] = mc
		}
	}
}

// warn says that what a MachineConfig has does not win over another one.
func (o *overruling) warn(path string, mc *MachineConfig, has string, other *MachineConfig, rule string) {
	if text := fmt.Sprintf("%s of %s does not win over %s: %s", problem.Quoted(has), mc.Name, other.Name, rule); !o.said[path+text] {
		o.said[path+text] = true
		o.report.Warn(path, "%s", text)
	}
}
