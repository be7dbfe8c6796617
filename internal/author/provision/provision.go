// Package provision makes the Ignition config that a new machine asks for: that
// of its role's MachineConfig, and in it the MachineConfig itself, encapsulated,
// for what Ignition cannot do. It follows the machine-config server, whose
// machines must understand it: path, mode, encoding and order are its.
package provision

import (
	"encoding/json"
	"slices"

	"machine-pivot/internal/author/legacy"
	"machine-pivot/internal/author/machineconfig"
	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/machineconfig/jsonpath"
	"machine-pivot/internal/problem"
)

// annotationsPath is where the machine-config daemon looks for what a node's
// annotations will be, before there is a node.
const annotationsPath = "/etc/machine-config-daemon/node-annotations.json"

// withKernelArguments is the first version that knows kernel arguments.
const withKernelArguments = "3.3.0"

// Config is the Ignition config, of one of legacy.Versions, for a machine that
// gets m, which must be rendered. What a machine needs beside it is merged over
// it. The report says what the version has no words for; then there is no config.
//
// The server's debugging copy, mcs-machine-config-content.json, is left out: it
// gives every user of the machine what files of mode 0600 hold.
func Config(m *machineconfig.MachineConfig, version string, more ...ignition.Config) ([]byte, problem.Report) {
	var report problem.Report
	config := ignition.Merge(append([]ignition.Config{*m.Spec.Config}, more...)...)
	reserved(config, &report)
	machine := *m
	if version < withKernelArguments { // each digit counts ten at most, so that texts compare as versions
		machine.Spec.KernelArguments = migrate(machine.Spec.KernelArguments, &config, &report)
	}
	text := encapsulate(machine, version, &report)
	config.Storage.Files = append(config.Storage.Files,
		ignition.NewFile(annotationsPath, 0o644, annotations(m.Name)),
		ignition.NewFile(encapsulated.Path, 0o644, text)) // last: some readers search from the end
	raw, problems := legacy.Down(config, version)
	for _, p := range problems {
		report.Add(p.Within("$.spec.config"+p.Path, "in an Ignition config of version "+version+": "))
	}
	if report.Failed() {
		raw = nil
	}
	return raw, report.In(m.Name)
}

// encapsulate writes the text of the encapsulated MachineConfig: its config is empty,
// for Ignition has done what it says.
func encapsulate(m machineconfig.MachineConfig, version string, report *problem.Report) []byte {
	empty := ignition.Empty()
	empty.Ignition.Version = version
	m.Spec.Config = &empty
	text, err := m.MarshalJSON()
	if err != nil {
		report.Fail("$", "cannot be written as JSON: %v", err)
	}
	return text
}

// FirstBoot judges m as this program does on a machine's first boot: what it would
// refuse there had better not be given to a machine.
func FirstBoot(m *machineconfig.MachineConfig, host encapsulated.Host) problem.Report {
	var report problem.Report
	_, refused := encapsulated.Parse(encapsulate(*m, ignition.Version, &report), host)
	for _, p := range refused.Errors() {
		report.Add(p.Within(p.Path, "pivot's first boot refuses it: "))
	}
	return report.In(m.Name)
}

// reserved refuses what is in the place of the files that are added.
func reserved(config ignition.Config, report *problem.Report) {
	paths := []string{annotationsPath, encapsulated.Path}
	for i, f := range config.Storage.Files {
		if slices.Contains(paths, f.Path) {
			report.Fail("$.spec.config"+jsonpath.Of("storage", "files", i, "path"), "%s is written for each machine; no MachineConfig may have it", f.Path)
		}
	}
	for i, l := range config.Storage.Links {
		if slices.Contains(paths, l.Path) {
			report.Fail("$.spec.config"+jsonpath.Of("storage", "links", i, "path"), "%s is written for each machine; no MachineConfig may have it", l.Path)
		}
	}
}

// migrate makes the kernel arguments that an older Ignition cannot set such that
// are set later, with those of the MachineConfig. Those that Ignition should
// remove are refused: nothing later would.
func migrate(entries []string, config *ignition.Config, report *problem.Report) []string {
	entries = slices.Clone(entries)
	for _, arg := range config.KernelArguments.ShouldExist {
		entries = append(entries, string(arg))
	}
	if len(config.KernelArguments.ShouldNotExist) > 0 {
		report.Fail("$.spec.config.kernelArguments.shouldNotExist", "an Ignition older than %s cannot remove kernel arguments", withKernelArguments)
	}
	config.KernelArguments = ignition.Empty().KernelArguments
	return entries
}

// annotations are those of a node that is what its MachineConfig says.
func annotations(name string) []byte {
	const prefix = "machineconfiguration.openshift.io/"
	text, err := json.Marshal(map[string]string{
		prefix + "currentConfig":    name,
		prefix + "desiredConfig":    name,
		prefix + "firstPivotConfig": name,
		prefix + "state":            "Done",
	})
	if err != nil {
		panic(err) // strings can always be written
	}
	return text
}
