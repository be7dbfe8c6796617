// Package encapsulated reads the encapsulated MachineConfig that Ignition leaves on a
// host: bytes in, the desired state out, or a report of everything that is wrong. What
// is not implemented is refused by name, never skipped.
//
// Source: the machine-config operator's server, which writes the file. The package
// does no I/O.
package encapsulated

import (
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/entries"
	"machine-pivot/internal/machineconfig/extensions"
	"machine-pivot/internal/machineconfig/jsonpath"
	"machine-pivot/internal/machineconfig/spec"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// Path is where Ignition writes the encapsulated MachineConfig.
const Path = "/etc/ignition-machine-config-encapsulated.json"

// Host is what must be known of the machine to judge a MachineConfig.
type Host struct {
	CPUs       pinning.CPUSet           // that it has; none: not known, not checked
	CheckImage func(image string) error // whether a reference can be used; nil: by the grammar of registries
	Policy     *kargs.Policy            // for kernel arguments; nil: the default one
	// Architecture is that of the machine, as in GOARCH; "": not known, not checked.
	Architecture string
	// Has is the MachineConfig that the machine runs with; nil on a first boot. What only an
	// installation does must then be as it says, or Unsupported decides.
	Has         *Desired
	Unsupported Unsupported
}

// Desired is what a MachineConfig asks for.
type Desired struct {
	Name string
	// FromCluster says that a cluster's machine-config operator rendered the
	// MachineConfig: its daemon will hold the machine against it, to the letter.
	FromCluster     bool
	Image           string   // spec.osImageURL as given; "" keeps the booted image
	KernelArguments []string // entries as given, each may hold several arguments
	FIPS            bool
	KernelType      string   // "" is the default one
	Extensions      []string // by their names in spec.extensions
	ExtensionsImage string   // where their packages and those of kernels come from, as given; "" says nothing of it
	entries.Asked            // by spec.config
	// LeftOut names what is not applied, since only an installation can change it: not
	// without Warn or Replace.
	LeftOut []string

	asked []byte // spec as JSON
	parts []part // that only an installation does
	kept  []part // those that are left out, as the machine has them
}

// Parse reads an encapsulated MachineConfig. Desired is nil exactly if
// the report has an error; it may have warnings otherwise.
func Parse(data []byte, host Host) (*Desired, problem.Report) {
	var report problem.Report
	root, ok := document.ParseJSON(data, &report)
	if !ok {
		return nil, report
	}
	d := judge(root, host)
	if report.Failed() {
		return nil, report
	}
	return d, report
}

// ParseRecord is Parse for the MachineConfig that a machine runs with: what only an
// installation does was done.
func ParseRecord(data []byte) (*Desired, problem.Report) {
	return Parse(data, Host{Has: &Desired{}, Unsupported: accept})
}

// Read is Parse for a MachineConfig as people have it: one document in a file of JSON or
// YAML, in which each problem has its line.
func Read(file string, data []byte, host Host) (*Desired, problem.Report) {
	var all []*Desired
	report := document.Read(file, data, func(root document.Node) { all = append(all, judge(root, host)) })
	if len(all) != 1 && !report.Failed() {
		report.Add(problem.Errorf("$", "it holds %d MachineConfigs, not one", len(all)))
	}
	if report.Failed() {
		return nil, report
	}
	return all[0], report
}

// ReadApplied is Read for the MachineConfig of a machine that is what it asks for: as with
// ParseRecord what only an installation does was done.
func ReadApplied(file string, data []byte, host Host) (*Desired, problem.Report) {
	host.Has, host.Unsupported = &Desired{}, accept
	return Read(file, data, host)
}

// judge reads a MachineConfig; what it returns is of use unless the report has an error.
func judge(root document.Node, host Host) *Desired {
	if !spec.Identity(root) {
		return nil
	}
	asked := root.Get("spec")
	if !asked.Object() {
		if asked.IsNull() {
			asked.Fail("it is missing")
		}
		return nil
	}
	policy := kargs.DefaultPolicy()
	if host.Policy != nil {
		policy = *host.Policy
	}
	metadata := root.Get("metadata")
	d := &Desired{
		Name:            metadata.Get("name").Text(),
		FromCluster:     !metadata.Get("annotations").Get(spec.GeneratedBy).IsNull(),
		Image:           spec.Image(asked.Get("osImageURL"), host.CheckImage),
		KernelArguments: spec.Arguments(asked.Get("kernelArguments"), policy),
		FIPS:            asked.Get("fips").Boolean(),
		KernelType:      spec.KernelType(asked.Get("kernelType"), host.Architecture),
		Extensions:      spec.Extensions(asked.Get("extensions")),
		asked:           asked.JSON(),
	}
	if config := asked.Get("config"); wellFormed(config) {
		if host.Has != nil {
			d.compare(asked, host)
		}
		d.Asked = d.entriesOf(config, host)
		if host.Has != nil {
			d.keep(host.Has)
		}
	}
	if source := asked.Get("baseOSExtensionsContainerImage"); d.ownKernel() && len(d.Extensions) == 0 {
		source.Text() // nothing is taken from it
	} else {
		d.ExtensionsImage = spec.Image(source, host.CheckImage)
	}
	unknown(asked)
	if err := spec.CheckTogether(d.KernelType, d.Extensions); err != nil {
		asked.Get("extensions").Fail("%v", err)
	}
	spec.Contradictions(asked.Path, d.KernelArguments, d.FIPS, asked.Report)
	spec.CheckLength(asked.Get("kernelArguments"), d.KernelArguments)
	if d.FromCluster {
		warnOfSpaces(asked.Get("kernelArguments"), d.KernelArguments)
	}
	return d
}

// warnOfSpaces warns of arguments that the machine-config daemon never finds: it
// takes the boot entry's line apart at each space, also between quotes.
func warnOfSpaces(n document.Node, entries []string) {
	for i, entry := range entries {
		for _, arg := range kargs.Split(entry) {
			if strings.Contains(arg, " ") {
				n.At(jsonpath.Element(i)).Warn("%s holds a space: a cluster's machine-config daemon reports such an argument as missing, always", problem.Quoted(arg))
			}
		}
	}
}

// ownKernel reports whether the kernel is the image's own.
func (d *Desired) ownKernel() bool {
	return d.KernelType == "" || d.KernelType == extensions.KernelDefault
}

// unknown warns of members that are not known: a cluster's API server lets nothing through that its API
// does not have, so it is of a later API, and a machine that is refused for it
// could never join. A known name in other letters is a known name for readers who
// do not tell them apart, as the machine-config daemon.
func unknown(asked document.Node) {
	for key, n := range asked.Members() {
		switch meant := slices.IndexFunc(spec.Members(), func(name string) bool { return strings.EqualFold(name, key) }); {
		case meant < 0:
			n.Warn("unknown member; this version of pivot does nothing about it")
		case spec.Members()[meant] != key:
			n.Report.Add(problem.Errorf(n.Path, "unknown member").WithHint("is " + spec.Members()[meant] + " meant?"))
		}
	}
}
