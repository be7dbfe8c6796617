// Package machineconfig decodes a MachineConfig. The machine that gets it and the check of its author use the same
// rules. It returns the state that the MachineConfig requests, or a report of everything that is wrong. What is not
// implemented is rejected by name, never skipped.
//
// Sources: the machine-config operator, its server and its daemon; the specification of Ignition 3.5 and Ignition's
// behavior. The package does no I/O.
package machineconfig

import (
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

const (
	// EncapsulatedPath is where Ignition writes the encapsulated MachineConfig. Others take its absence for the end of the first boot,
	// as the machine-config operator promises: NetworkManager-clean-initrd-state.service among them.
	EncapsulatedPath = "/etc/ignition-machine-config-encapsulated.json"
	// CommittedPath is where the deployment has it that a first boot has committed, until that first boot is closed. It is
	// pivot's own.
	CommittedPath = EncapsulatedPath + ".committed"
	// OpenGlob matches both in the condition of a unit.
	OpenGlob = EncapsulatedPath + "{,.committed}"
	// ClosedSuffix is appended to the file's name when the first boot is closed.
	ClosedSuffix = ".bak"
	ClosedPath   = EncapsulatedPath + ClosedSuffix
	// DaemonPath is the MachineConfig that the machine-config-daemon applied last.
	// Source: pkg/daemon/constants of the machine-config operator.
	DaemonPath = "/etc/machine-config-daemon/currentconfig"
)

// OpenPaths returns the paths of the encapsulated MachineConfig while its first boot is open. The first file that exists
// counts.
func OpenPaths() []string { return []string{EncapsulatedPath, CommittedPath} }

// CurrentPaths returns the paths at which a system has its MachineConfig. The first file that exists
// is the newest.
func CurrentPaths() []string { return []string{RecordPath, DaemonPath, ClosedPath} }

// Recorder is the program that has recorded a system's MachineConfig; the names are stable.
type Recorder string

// The recorders.
const (
	RecordedByPivot     Recorder = "pivot"                 // which has compared all of it with the system
	RecordedByDaemon    Recorder = "machine-config-daemon" // which may have left the system without all of it
	RecordedByFirstBoot Recorder = "first-boot"            // Ignition, which has left out the entries
)

// RecorderOf returns the recorder of one of the CurrentPaths.
func RecorderOf(path string) Recorder {
	switch path {
	case RecordPath:
		return RecordedByPivot
	case DaemonPath:
		return RecordedByDaemon
	}
	return RecordedByFirstBoot
}

// Host is what must be known about the machine to check a MachineConfig.
type Host struct {
	CPUs       pinning.CPUSet           // the machine's CPUs; empty: unknown, not checked
	CheckImage func(image string) error // reports whether a reference is usable; nil: checks the grammar of image references
	Policy     *kargs.Policy            // for kernel arguments; nil: the default one
	// Architecture is the machine's GOARCH; "": unknown, not checked.
	Architecture string
	// Has is the MachineConfig that the machine runs with; nil on a first boot. Settings that
	// only an installation can change are compared with it, and Unsupported decides about
	// differences.
	Has         *Desired
	Unsupported Unsupported
}

// Desired is the state that a MachineConfig requests.
type Desired struct {
	Name string
	// FromCluster reports whether a cluster's machine-config operator rendered the
	// MachineConfig. Its daemon will then compare the machine with it literally.
	FromCluster     bool
	Image           string   // spec.osImageURL as given; "" keeps the booted image
	KernelArguments []string // entries as given; each may have several arguments
	FIPS            bool
	KernelType      string   // "" means the default
	Extensions      []string // names as in spec.extensions
	ExtensionsImage string   // image with the packages of extensions and kernels, as given; "" if not specified
	Asked                    // from spec.config
	// LeftOut names the settings that are not applied because only an installation can change
	// them. It is empty unless Unsupported is Warn or Replace.
	LeftOut []string

	asked  []byte // spec as JSON
	parts  []part // settings that only an installation can change
	kept   []part // settings left out, with the machine's values
	unused []part // in the MachineConfig that a machine runs with: values that pivot cannot use
	stays  int    // in one that replaces it: how many of these it has
}

// Parse parses an encapsulated MachineConfig. Desired is nil if and only if the report has an
// error; otherwise the report may have warnings.
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

// ParseRecord is Parse for the MachineConfig that a machine runs with: it is accepted as applied,
// with what only an installation can change, and what pivot cannot use, which the report's warnings
// name.
func ParseRecord(data []byte, host Host) (*Desired, problem.Report) {
	host.Has, host.Unsupported = &Desired{}, accept
	return Parse(data, host)
}

// Read is Parse for a MachineConfig that a user provides: one document in a JSON or YAML file.
// Problems have line numbers.
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

// ReadApplied is Read for a MachineConfig that a machine would run with, accepted as by ParseRecord.
func ReadApplied(file string, data []byte, host Host) (*Desired, problem.Report) {
	host.Has, host.Unsupported = &Desired{}, accept
	return Read(file, data, host)
}

// HasUnusedOf reports whether a MachineConfig has all that pivot cannot use in the one that it
// replaces.
func (d *Desired) HasUnusedOf(before *Desired) bool { return d.stays == len(before.unused) }

// judge checks and converts a MachineConfig. The result must not be used if the report has an
// error.
func judge(root document.Node, host Host) *Desired {
	switch {
	case host.Has == nil:
		return convert(root, host, nil)
	case host.Unsupported == accept:
		return settle(root, host)
	}
	without := staying(root, host.Has)
	d := convert(root, host, without)
	if d != nil {
		d.stays = len(without)
	}
	return d
}

// convert is judge for what is left of a MachineConfig without the values at some paths.
func convert(whole document.Node, host Host, without map[string]bool) *Desired {
	root := whole.Without(without)
	if !Identity(root) {
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
		FromCluster:     !metadata.Get("annotations").Get(GeneratedBy).IsNull(),
		Image:           Image(asked.Get("osImageURL"), host.CheckImage),
		KernelArguments: Arguments(asked.Get("kernelArguments"), policy),
		FIPS:            asked.Get("fips").Boolean(),
		KernelType:      KernelType(asked.Get("kernelType"), host.Architecture),
		Extensions:      Extensions(asked.Get("extensions")),
		asked:           whole.Get("spec").JSON(),
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
		UnusedImage(source, host.CheckImage)
	} else {
		d.ExtensionsImage = Image(source, host.CheckImage)
	}
	unknown(asked)
	if err := CheckTogether(d.KernelType, d.Extensions); err != nil {
		asked.Get("extensions").Fail("%v", err)
	}
	Contradictions(asked.Get("kernelArguments"), d.KernelArguments, d.FIPS)
	CheckLength(asked.Get("kernelArguments"), d.KernelArguments)
	if d.FromCluster {
		warnOfSpaces(asked.Get("kernelArguments"), d.KernelArguments)
	}
	return d
}

// warnOfSpaces warns about arguments that the machine-config daemon never finds, because it
// splits the command line of the boot entry at every space, also within quotes.
func warnOfSpaces(n document.Node, entries []string) {
	for i, entry := range entries {
		for _, arg := range kargs.Split(entry) {
			if strings.Contains(arg, " ") {
				n.At(document.Element(i)).Warn("%s holds a space: a cluster's machine-config daemon reports such an argument as missing, always", problem.Quoted(arg))
			}
		}
	}
}

// ownKernel reports whether the image's own kernel is used.
func (d *Desired) ownKernel() bool {
	return d.KernelType == "" || d.KernelType == KernelDefault
}

// unknown warns about unknown members. A cluster's API server admits only members of its API,
// so an unknown one is from a later API, and rejecting it would keep the machine from joining.
// A known name in different case is an error, because readers that ignore case, such as the
// machine-config daemon, take it for the known one.
func unknown(asked document.Node) {
	for key, n := range asked.Members() {
		switch meant := slices.IndexFunc(Members(), func(name string) bool { return strings.EqualFold(name, key) }); {
		case meant < 0:
			n.Warn("unknown member; this version of pivot does nothing about it")
		case Members()[meant] != key:
			n.Report.Add(problem.Errorf(n.Path, "unknown member").WithHint("is " + Members()[meant] + " meant?"))
		}
	}
}
