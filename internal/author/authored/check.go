package authored

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"machine-pivot/internal/author/legacy"
	"machine-pivot/internal/budget"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/pinning"
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
	checkEntries(n, config, version)
	for i, entry := range ignition.Arguments(config) {
		machineconfig.CheckArgument(n.At(inConfig+document.Element(i)), entry, rules.KernelArguments)
	}
}

// inConfig is where an Ignition config has kernel arguments.
const inConfig = ".kernelArguments.shouldExist"

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

// checkEntries refuses what each machine refuses: see entries.Check. A config that is not in its document in version 3
// (it was fetched, merged or translated) is read again for it; of one that was translated, places are not known.
func checkEntries(n document.Node, config ignition.Config, version string) {
	if !n.IsNull() && !strings.HasPrefix(version, "2.") {
		machineconfig.CheckEntries(n, config, version)
		return
	}
	var found problem.Report
	if root, ok := document.ParseJSON(ignition.Marshal(config), &found); ok {
		machineconfig.CheckEntries(root, config, version)
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
		if errors.Is(err, budget.ErrExceeded) {
			break // so would be every other content
		}
	}
}

// Check checks a merged MachineConfig for what only the combination of its parts can get wrong.
// Paths are those of the merged object.
func Check(m *MachineConfig, rules Rules) problem.Report {
	var report problem.Report
	n := document.Node{Path: "$.spec", Report: &report}
	m.Spec.contradictions(n)
	if err := machineconfig.CheckTogether(m.Spec.KernelType, m.Spec.Extensions); err != nil {
		report.Fail("$.spec.extensions", "%v", err)
	}
	line := machineconfig.CommandLine(m.Spec.Arguments())
	machineconfig.CheckLength(n.At(".kernelArguments"), m.Spec.Arguments())
	checkThreads(line, &report)
	if m.Spec.Config != nil {
		checkMerged(*m.Spec.Config, line, rules, &report)
	}
	checkSize(m, &report)
	return report
}

// contradictions reports kernel arguments that contradict the member fips. n is the node of the spec.
func (s Spec) contradictions(n document.Node) {
	machineconfig.Contradictions(n.At(".kernelArguments"), s.KernelArguments, s.FIPS)
	if s.Config != nil {
		machineconfig.Contradictions(n.At(".config"+inConfig), ignition.Arguments(*s.Config), s.FIPS)
	}
}

// checkMerged has Ignition validate the merged config, which can be invalid though each part is
// valid, and checks the files in it that this project reads.
func checkMerged(config ignition.Config, line kargs.Line, rules Rules, report *problem.Report) {
	if reflect.DeepEqual(config, ignition.Empty()) {
		return // as with MachineConfigs that have arguments only
	}
	n := document.Node{Path: "$.spec.config", Report: report}
	_, problems := legacy.Parse(ignition.Marshal(config))
	report.Add(problems.Errors().Below(n.Path)...) // warnings were reported for each part
	checkContents(n, config)
	checkEntries(n, config, ignition.Versions()[0]) // modes were judged by the version of each part
	checkPinning(n.At(".storage.files"), config, line, rules)
	checkOwn(n, config)
}

// checkContents refuses contents that are together more than a machine takes, though those of each part are not. What
// else is wrong with a content was reported for its part.
func checkContents(n document.Node, config ignition.Config) {
	room := NewRoom().OfMachine()
	for _, p := range ignition.Contents(&config) {
		if err := ignition.CheckContent(*p.Resource, room); errors.Is(err, budget.ErrExceeded) {
			n.At("."+p.Path).Fail("%v", err)
			return
		}
	}
}

// checkOwn refuses files that pivot itself reads and could not. Contents that cannot be read are
// reported elsewhere.
func checkOwn(n document.Node, config ignition.Config) {
	room := NewRoom()
	for i, f := range config.Storage.Files {
		parse := machineconfig.ParserOf(f.Path)
		if parse == nil {
			continue
		}
		if content, err := ignition.Content(f.Contents, room); err == nil {
			if err := parse(content); err != nil {
				n.At(document.PathOf("storage", "files", i)).Fail("%v", err)
			}
		}
	}
}

// checkPinning checks all files of CRI-O and kubelet that CPU partitioning is read from against each
// other and against the machines. n is the node of the files.
func checkPinning(n document.Node, config ignition.Config, line kargs.Line, rules Rules) {
	contents, room := map[string][]byte{}, NewRoom()
	for _, f := range config.Storage.Files {
		if !pinning.IsRead(f.Path) {
			continue
		}
		if content, err := ignition.Content(f.Contents, room); err == nil {
			contents[f.Path] = content
		}
	}
	found := pinning.Inspect(pinning.Input{Files: contents, Machine: pinning.CPUsOnly(rules.CPUs), Line: line})
	for _, p := range found.Problems {
		if p.Path == "" { // it is about the kernel arguments
			n.Report.Add(p.Within("$.spec.kernelArguments", ""))
			continue
		}
		n.Report.Add(p.Within(n.Path, "file "+p.Path+": "))
	}
	if arg, _ := line.ThreadsOff(); arg != "" && len(found.Workloads) > 0 && rules.CPUs.IsEmpty() {
		n.Report.Warn("$.spec.kernelArguments", "%s switches the second threads of all cores off: of the CPUs of the workloads %s none may be one",
			arg, strings.Join(found.Workloads.Names(), ", "))
	}
}

// checkThreads reports arguments that both enable and disable hyperthreading.
func checkThreads(line kargs.Line, report *problem.Report) {
	on := slices.Contains(line.Values("smt-enabled"), "on") || slices.Contains(line.Values("smt-enabled"), "1")
	if on && line.DisablesThreads() {
		report.Fail("$.spec.kernelArguments", "smt-enabled asks for hyperthreading and nosmt forbids it")
	}
}

// checkSize compares the size of the object with what a cluster can store.
func checkSize(m *MachineConfig, report *problem.Report) {
	data, err := m.MarshalJSON()
	switch {
	case err != nil:
		report.Fail("$", "cannot be written as JSON: %v", err)
	case len(data) > maxRendered:
		report.Fail("$", "it has %d bytes of JSON, more than the %d that a cluster can store", len(data), maxRendered)
	case len(data) > maxRendered/5*4:
		report.Warn("$", "it has %d bytes of JSON, close to the %d that a cluster can store", len(data), maxRendered)
	}
}
