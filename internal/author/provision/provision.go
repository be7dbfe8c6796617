// Package provision renders and serves the Ignition config for a new machine: the config of its role's MachineConfig plus
// the MachineConfig itself, encapsulated, for what Ignition cannot do. Path, mode, encoding and order are those of the
// machine-config server, because its machines must understand the result. A new machine can get it with a token.
package provision

import (
	"encoding/json"
	"slices"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
)

// annotationsPath is where the machine-config daemon finds the annotations for the node before the
// node object exists.
const annotationsPath = "/etc/machine-config-daemon/node-annotations.json"

// withKernelArguments is the first version that has kernel arguments.
const withKernelArguments = "3.3.0"

// Config returns the Ignition config, of one of authored.IgnitionVersions, for a node with the rendered
// MachineConfig m. Additional configs are merged over it. What the version does not support is an
// error in the report; then there is no config.
//
// The server's debugging copy, mcs-machine-config-content.json, is left out: it would let every
// user of the machine read files of mode 0600.
func Config(m *authored.MachineConfig, version string, more ...ignition.Config) ([]byte, problem.Report) {
	return render(m, version, more, ignition.NewFile(annotationsPath, 0o644, annotations(m.Name)))
}

// render returns the Ignition config, with additional configs and files.
func render(m *authored.MachineConfig, version string, more []ignition.Config, files ...ignition.File) ([]byte, problem.Report) {
	var report problem.Report
	config := ignition.Merge(append([]ignition.Config{*m.Spec.Config}, more...)...)
	reserved(config, &report)
	machine := *m
	if version < withKernelArguments { // a string comparison works, because no number has more than one digit
		machine.Spec.KernelArguments = migrate(machine.Spec.KernelArguments, &config, &report)
	}
	text := encapsulate(machine, version, &report)
	files = append(files, ignition.NewFile(machineconfig.EncapsulatedPath, 0o644, text)) // last: some readers search from the end
	config.Storage.Files = append(config.Storage.Files, files...)
	raw, problems := authored.WriteIgnition(config, version)
	for _, p := range problems {
		report.Add(p.Within("$.spec.config"+p.Path, "in an Ignition config of version "+version+": "))
	}
	if report.Failed() {
		raw = nil
	}
	return raw, report.In(m.Name)
}

// encapsulate returns the encapsulated MachineConfig. Its Ignition config is empty, because
// Ignition has already applied it.
func encapsulate(m authored.MachineConfig, version string, report *problem.Report) []byte {
	empty := ignition.Empty()
	empty.Ignition.Version = version
	m.Spec.Config = &empty
	text, err := m.MarshalJSON()
	if err != nil {
		report.Fail("$", "cannot be written as JSON: %v", err)
	}
	return text
}

// reserved refuses entries at the path of the file that is added and that the machine's own MachineConfig may have.
func reserved(config ignition.Config, report *problem.Report) {
	check := func(list string, i int, path string) {
		if path == annotationsPath {
			report.Fail("$.spec.config"+document.PathOf("storage", list, i, "path"), "%s is written for each machine; no MachineConfig may have it", path)
		}
	}
	for i, f := range config.Storage.Files {
		check("files", i, f.Path)
	}
	for i, l := range config.Storage.Links {
		check("links", i, l.Path)
	}
}

// migrate moves kernel arguments that an older Ignition cannot set to those of the MachineConfig,
// which are set later. Arguments to be removed are refused: nothing would remove them later.
func migrate(entries []string, config *ignition.Config, report *problem.Report) []string {
	entries = slices.Concat(entries, ignition.Arguments(*config))
	if len(config.KernelArguments.ShouldNotExist) > 0 {
		report.Fail("$.spec.config.kernelArguments.shouldNotExist", "an Ignition older than %s cannot remove kernel arguments", withKernelArguments)
	}
	config.KernelArguments = ignition.Empty().KernelArguments
	return entries
}

// annotations returns the annotations of a node that is up to date with its MachineConfig.
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
