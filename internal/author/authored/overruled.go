package authored

import (
	"cmp"
	"reflect"
	"slices"

	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// Overruled warns about each setting of a MachineConfig that does not win over that of one with an earlier name, when Merge
// merges them. Readers expect that the later name wins, as it does for all else.
func Overruled(all []*MachineConfig) problem.Report {
	o := overruling{entries: map[string]entry{}, masks: map[string]*MachineConfig{}}
	for _, mc := range inOrder(all) {
		o.add(mc)
	}
	o.arguments()
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
	entries            map[string]entry          // files, directories, links and units, by path or name
	masks              map[string]*MachineConfig // by the name of the unit that is masked
	line               kargs.Line
	of                 []*MachineConfig // each argument's
}

// entry is an entry of a config.
type entry struct {
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
	o.image("$.spec.osImageURL", mc, &o.images, func(s machineconfig.Spec) string { return s.OSImageURL })
	o.image("$.spec.baseOSExtensionsContainerImage", mc, &o.extensions, func(s machineconfig.Spec) string { return s.ExtensionsImage })
	o.config(mc)
	for _, argument := range machineconfig.CommandLine(s.Arguments()) {
		o.line, o.of = append(o.line, argument), append(o.of, mc)
	}
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

// config notes the files, directories, links and units of a MachineConfig.
func (o *overruling) config(mc *MachineConfig) {
	if mc.Spec.Config == nil {
		return
	}
	c := mc.Spec.Config
	for _, f := range c.Storage.Files {
		o.entry("$.spec.config.storage.files", f.Path, entry{mc, f})
	}
	for _, d := range c.Storage.Directories {
		o.entry("$.spec.config.storage.directories", d.Path, entry{mc, d})
	}
	for _, l := range c.Storage.Links {
		o.entry("$.spec.config.storage.links", l.Path, entry{mc, l})
	}
	for _, u := range c.Systemd.Units {
		o.entry("$.spec.config.systemd.units", u.Name, entry{mc, u})
		switch by := o.masks[u.Name]; {
		case u.Mask != nil && *u.Mask:
			o.masks[u.Name] = mc
		case u.Mask != nil:
			delete(o.masks, u.Name)
		case by != nil && (u.Contents != nil || u.Enabled != nil && *u.Enabled):
			o.warn("$.spec.config.systemd.units", mc, u.Name, by, "it stays masked without mask: false")
		}
	}
}

// entry notes an entry of a config.
func (o *overruling) entry(path, name string, e entry) {
	if last, again := o.entries[name]; again && !reflect.DeepEqual(last.is, e.is) {
		o.role(path, name, last.mc, e.mc)
	}
	o.entries[name] = e
}

// role warns if a MachineConfig overrides one that has a later name, because that is of the role worker.
func (o *overruling) role(path, has string, last, mc *MachineConfig) {
	if last.Name > mc.Name {
		o.warn(path, last, has, mc, "those of the role "+mc.Role()+" override those of worker, whatever their names")
	}
}

// arguments warns about arguments that the kernel ignores because of one of an earlier MachineConfig.
func (o *overruling) arguments() {
	once := o.line.Once()
	for i, argument := range o.line {
		if at, ignored := once[i]; ignored && o.of[at] != o.of[i] {
			o.warn("$.spec.kernelArguments", o.of[i], argument, o.of[at], "the first one of each size counts")
		}
	}
}

// warn says that what a MachineConfig has does not win over another one.
func (o *overruling) warn(path string, mc *MachineConfig, has string, other *MachineConfig, rule string) {
	o.report.Warn(path, "%s of %s does not win over %s: %s", problem.Quoted(has), mc.Name, other.Name, rule)
}
