package authored

import (
	"errors"
	"slices"
	"strings"
	"unicode"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// maxInput limits the decompressed contents of all files together that one command reads, in bytes.
const maxInput = 64 << 20

// NewRoom returns the room for the contents of all MachineConfigs that one command reads.
func NewRoom() *ignition.Room { return ignition.NewRoom(ignition.MaxContent, maxInput) }

// maxRendered is the maximum size of an object in etcd, in bytes of JSON.
const maxRendered = 1_572_864

// CheckConfig checks a config for what Ignition does not check, and where the machine-config daemon
// is stricter, and its kernel arguments by the policy in rules. n is the node of the config, version is the
// one that it was written in; rules have a Room.
func CheckConfig(n document.Node, config ignition.Config, version string, rules Rules) {
	checkFiles(n, config, rules.Room)
	checkNames(n, config)
	checkAsMachine(n, config, version, rules)
}

// checkNames refuses names with control characters, which only a mistake can have. Whoever shows them would be misled.
func checkNames(n document.Node, config ignition.Config) {
	check := func(name string, steps ...any) {
		if strings.ContainsFunc(name, unicode.IsControl) {
			n.At(document.PathOf(steps...)).Fail("%s cannot be the name of a file", problem.Quoted(name))
		}
	}
	for i, f := range config.Storage.Files {
		check(f.Path, "storage", "files", i, "path")
	}
	for i, d := range config.Storage.Directories {
		check(d.Path, "storage", "directories", i, "path")
	}
	for i, l := range config.Storage.Links {
		check(l.Path, "storage", "links", i, "path")
	}
	for i, u := range config.Systemd.Units {
		for j, d := range u.Dropins {
			check(d.Name, "systemd", "units", i, "dropins", j, "name")
		}
	}
}

// checkAsMachine refuses what each machine refuses: see machineconfig.CheckConfig. A config that is not in its document in
// version 3 (it was fetched or translated) is read again for it; of one that was translated, places are not known.
func checkAsMachine(n document.Node, config ignition.Config, version string, rules Rules) {
	if !n.IsNull() && !strings.HasPrefix(version, "2.") {
		machineconfig.CheckConfig(n, config, version, rules.KernelArguments)
		return
	}
	var found problem.Report
	if root, ok := document.ParseJSON(ignition.Marshal(config), &found); ok {
		machineconfig.CheckConfig(root, config, version, rules.KernelArguments)
	}
	for _, p := range found {
		at := n.Path
		if !strings.HasPrefix(version, "2.") {
			at += strings.TrimPrefix(p.Path, "$")
		}
		n.Report.Add(p.Within(at, ""))
	}
}

func checkFiles(n document.Node, config ignition.Config, room *ignition.Room) {
	for i, f := range config.Storage.Files {
		at := document.PathOf("storage", "files", i)
		if len(f.Append) > 0 {
			n.At(at + ".append").Warn("the machine-config daemon refuses files that are appended to when it updates a machine")
		}
	}
	room = room.OfMachine()
	for _, p := range ignition.Contents(&config) {
		if ignition.IsRemote(*p.Resource) {
			continue
		}
		err := ignition.CheckContent(*p.Resource, room)
		if err != nil {
			n.At(p.Path).Fail("%v", err)
		}
		if errors.Is(err, guard.ErrTooMuch) {
			break // so would be every other content
		}
	}
}

// Check checks a merged MachineConfig for what only the combination of its parts can get wrong. It checks it as a machine
// does, and for what a cluster does not store. Paths are those of the merged object.
func Check(m *MachineConfig, rules Rules) problem.Report {
	var report problem.Report
	line := machineconfig.CommandLine(m.Spec.Arguments())
	checkThreads(line, &report)
	checkExtensions(m.Spec, &report)
	text, err := m.MarshalJSON()
	if err != nil {
		report.Fail("$", "cannot be written as JSON: %v", err)
		return report
	}
	report.Add(machineconfig.Check(text, rules.Host())...)
	checkSize(len(text), &report)
	return report
}

// checkThreads reports arguments that both enable and disable hyperthreading.
func checkThreads(line kargs.Line, report *problem.Report) {
	on := slices.Contains(line.Values("smt-enabled"), "on") || slices.Contains(line.Values("smt-enabled"), "1")
	if on && line.DisablesThreads() {
		report.Fail("$.spec.kernelArguments", "smt-enabled asks for hyperthreading and nosmt forbids it")
	}
}

// checkSize compares the size of the object, in bytes of JSON, with what a cluster can store.
func checkSize(size int, report *problem.Report) {
	switch {
	case size > maxRendered:
		report.Fail("$", "it has %d bytes of JSON, more than the %d that a cluster can store", size, maxRendered)
	case size > maxRendered/5*4:
		report.Warn("$", "it has %d bytes of JSON, close to the %d that a cluster can store", size, maxRendered)
	}
}

// checkExtensions warns about packages of extensions and kernels if no image that has them is named.
func checkExtensions(s machineconfig.Spec, report *problem.Report) {
	if !s.ExtensionsImage.IsZero() {
		return
	}
	const none = "without baseOSExtensionsContainerImage, or a cluster that names one, no machine can install "
	if s.KernelType == machineconfig.KernelRealtime || s.KernelType == machineconfig.Kernel64k {
		report.Warn("$.spec.kernelType", none+"the kernel %s", s.KernelType)
	}
	if len(s.Extensions) > 0 {
		report.Warn("$.spec.extensions", none+"the extensions")
	}
}
