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

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// Host is what a MachineConfig is checked against: the machine that gets it, or what is known of all machines that will.
type Host struct {
	CPUs   pinning.Machine // the machine's CPUs
	Policy *kargs.Policy   // for kernel arguments; nil: the default one
	// Architecture is the machine's GOARCH; "": unknown, not checked.
	Architecture string
	// Has is the MachineConfig that the machine runs with; nil on a first boot. Settings that
	// only an installation can change are compared with it, and Unsupported decides about
	// differences.
	Has         *MachineConfig
	Unsupported Unsupported
	// Author is the strictness of an author's check. Machines will be installed with the MachineConfig, so no setting is
	// compared or left out. What no machine uses is refused, too.
	Author bool
}

// MachineConfig is the state that a MachineConfig requests of a machine.
type MachineConfig struct {
	Name string
	// FromCluster reports whether a cluster's machine-config operator rendered the
	// MachineConfig. Its daemon will then compare the machine with it literally.
	FromCluster bool
	Spec
	Entries []hostfiles.File           // from spec.config: what is below /etc and /var
	Keeps   map[string]hostfiles.Keeps // by path: attributes that an existing directory keeps
	Units   enable.Units               // the requested state of unit links
	// LeftOut names the settings that are not applied because only an installation can change
	// them. It is empty unless Unsupported is Warn or Replace.
	LeftOut []string

	asked        []byte         // spec as JSON
	parts        []part         // settings that only an installation can change
	kept         []part         // settings left out, with the machine's values
	unused       []part         // in the MachineConfig that a machine runs with: values that pivot cannot use
	stays        int            // in one that replaces it: how many of these it has
	partitioning problem.Report // of the files of CPU partitioning
}

// Parse parses an encapsulated MachineConfig. The result is nil if and only if the report has an
// error; otherwise the report may have warnings.
func Parse(data []byte, host Host) (*MachineConfig, problem.Report) {
	var report problem.Report
	root, ok := document.ParseJSON(data, &report)
	if !ok {
		return nil, report
	}
	d := decode(root, host)
	if report.Failed() {
		return nil, report
	}
	return d, report
}

// ParseRecord is Parse for the MachineConfig that a machine runs with. It is accepted as applied, with what only an
// installation can change, and what pivot cannot use, which the report's warnings name.
func ParseRecord(data []byte, host Host) (*MachineConfig, problem.Report) {
	host.Has, host.Unsupported = &MachineConfig{}, accept
	return Parse(data, host)
}

// Read is Parse for a MachineConfig that a user provides: the only one in a JSON or YAML file, as Objects reads it.
// Problems have line numbers.
func Read(file string, data []byte, host Host) (*MachineConfig, problem.Report) {
	var all []*MachineConfig
	report := document.Read(file, data, func(root document.Node) {
		for _, n := range Objects(root, nil) {
			all = append(all, decode(n, host))
		}
	})
	if len(all) != 1 && !report.Failed() {
		report.Add(problem.Errorf("$", "it holds %d MachineConfigs, not one", len(all)))
	}
	if report.Failed() {
		return nil, report
	}
	return all[0], report
}

// ReadApplied is Read for a MachineConfig that a machine would run with, accepted as by ParseRecord.
func ReadApplied(file string, data []byte, host Host) (*MachineConfig, problem.Report) {
	host.Has, host.Unsupported = &MachineConfig{}, accept
	return Read(file, data, host)
}

// HasUnusedOf reports whether a MachineConfig has all that pivot cannot use in the one that it
// replaces.
func (d *MachineConfig) HasUnusedOf(before *MachineConfig) bool { return d.stays == len(before.unused) }

// Check returns the problems of a whole MachineConfig, as one that is merged, for its author. It is Parse with the
// strictness of an author, so that each machine's refusal that depends on the text alone is one of them. What a
// MachineConfig has to fetch is not judged. Warnings about a single value are left out: Decode gives them for the
// MachineConfig that has the value.
func Check(data []byte, host Host) problem.Report {
	host.Author = true
	var report problem.Report
	root, ok := document.ParseJSON(data, &report)
	if !ok {
		return report
	}
	d := decode(root, host)
	return slices.DeleteFunc(report, func(p problem.Problem) bool {
		return p.Severity == problem.Warning && (d == nil || !slices.Contains(d.partitioning, p))
	})
}

// decode decodes a MachineConfig with one of two strictnesses. An error refuses what a machine is given, and what an
// author writes. Of what a machine already runs with, only each wrong value is set aside. The result must not be used
// if the report has an error.
func decode(root document.Node, host Host) *MachineConfig {
	switch {
	case host.Author || host.Has == nil:
		return host.whole(root, nil)
	case host.Unsupported == accept:
		return setAside(root, host)
	}
	without := staying(root, host.Has)
	d := host.whole(root, without)
	if d != nil {
		d.stays = len(without)
	}
	return d
}

// whole decodes what is left of a whole MachineConfig without the values at some paths.
func (host Host) whole(given document.Node, without map[string]bool) *MachineConfig {
	root := given.Without(without)
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
	metadata := root.Get("metadata")
	d := &MachineConfig{
		Name:        metadata.Get("name").Text(),
		FromCluster: !metadata.Get("annotations").Get(GeneratedBy).IsNull(),
		Spec:        host.DecodeSpec(asked),
		asked:       given.Get("spec").JSON(),
	}
	if config := asked.Get("config"); wellFormed(config) {
		d.compare(asked, host)
		d.decodeConfig(config, host)
		d.keep(host)
	}
	d.checkTogether(asked)
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
