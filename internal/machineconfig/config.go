package machineconfig

import (
	"cmp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
)

// decodeConfig decodes the entries that an Ignition config requests, including the state of units.
// The config of an encapsulated file is normally empty, because Ignition has applied it in the
// initramfs. The version of an empty config does not matter: servers write the one that the
// client requested.
func (d *MachineConfig) decodeConfig(config document.Node, host Host) {
	if !hasContent(config) {
		if host.Author { // its arguments are judged
			d.checkPinning(nil, &collector{report: config.Report}, host)
		}
		return
	}
	d.refuseOthers(config, host)
	parsed, ok := parseIgnition(config)
	if !ok {
		return
	}
	version, room := config.Get("ignition").Get("version").Text(), ignition.NewRoom(ignition.MaxContent, ignition.MaxContents)
	if host.Author {
		d.Config, version = &parsed, ignition.Versions()[0] // modes were judged by the version of the config that has them
		checkArguments(config, parsed, host.policy())
	}
	c := collect(config, parsed, version, pathsOf(d.parts), func(r ignition.Resource) ([]byte, error) {
		if host.Author && ignition.IsRemote(r) {
			return nil, nil
		}
		return ignition.Content(r, room)
	})
	d.Entries, d.Keeps, d.Units = c.all, c.keeps, c.units
	files := slices.DeleteFunc(slices.Clone(c.all), func(f hostfiles.File) bool {
		return f.Kind != hostfiles.KindFile || !IsJudged(f.Path) || isFetched(parsed, f.Path)
	})
	d.checkPinning(files, c, host)
	if host.Unsupported != accept {
		checkOwn(files, c, host)
	}
}

// IsJudged reports whether the content of the file at a path is judged: pivot reads it, or CPU partitioning is read from it.
func IsJudged(path string) bool { return pinning.IsRead(path) || ParserOf(path) != nil }

// isFetched reports whether the content of a file is not in a config.
func isFetched(config ignition.Config, path string) bool {
	return slices.ContainsFunc(config.Storage.Files, func(f ignition.File) bool { return f.Path == path && ignition.IsRemote(f.Contents) })
}

// checkOwn rejects files that pivot itself reads and could not. One that the machine has is no error:
// it is still replaced and removed as any other.
func checkOwn(files []hostfiles.File, c *collector, host Host) {
	for _, f := range files {
		parse := ParserOf(f.Path)
		if parse == nil || host.Has != nil && slices.ContainsFunc(host.Has.Entries, func(has hostfiles.File) bool { return has.Entry == f.Entry }) {
			continue
		}
		if err := parse(f.Content); err != nil {
			c.report.Fail(c.at[f.Path], "%v", err)
		}
	}
}

// checkPinning checks the files of CPU partitioning for consistency with each other and with the machine's CPUs. An
// author has all files and all kernel arguments. What another file of a machine can supply is left to the check of the
// machine.
func (d *MachineConfig) checkPinning(files []hostfiles.File, c *collector, host Host) {
	in := pinning.Input{Files: map[string][]byte{}, Machine: host.CPUs, Partial: !host.Author}
	for _, f := range files {
		if pinning.IsRead(f.Path) {
			in.Files[f.Path] = f.Content
		}
	}
	if host.Author {
		in.Line = CommandLine(d.Arguments())
	}
	found := pinning.Inspect(in)
	if arg, _ := in.Line.ThreadsOff(); arg != "" && len(found.Workloads) > 0 && host.CPUs.Present.IsEmpty() {
		found.Problems.Warn("", "%s switches the second threads of all cores off: of the CPUs of the workloads %s none may be one",
			arg, strings.Join(found.Workloads.Names(), ", "))
	}
	for _, p := range found.Problems {
		if p.Path == "" { // it is about the kernel arguments
			d.partitioning.Add(p.Within("$.spec.kernelArguments", ""))
			continue
		}
		d.partitioning.Add(p.Within(cmp.Or(c.at[p.Path], "$.spec.config.storage.files"), "file "+p.Path+": "))
	}
	c.report.Add(d.partitioning...)
}

// wellFormed checks the types of a config's upper two levels, which are the same in every
// version: objects of lists, and in "ignition" objects and the version. An absent config is
// well-formed.
func wellFormed(config document.Node) bool {
	before := len(*config.Report)
	config.Object()
	for key, n := range config.Members() {
		n.Object()
		for name, inner := range n.Members() {
			switch {
			case key != "ignition":
				inner.Items()
			case name == "version":
				inner.Text()
			default:
				inner.Object()
			}
		}
	}
	return len(*config.Report) == before
}

// hasContent reports whether a config has anything except its version.
func hasContent(config document.Node) bool {
	for key, n := range config.Members() {
		if key != "ignition" && !n.IsEmpty() {
			return true
		}
		for name, inner := range n.Members() {
			if key == "ignition" && name != "version" && !inner.IsEmpty() {
				return true
			}
		}
	}
	return false
}

// applied returns the members of a config that are applied.
func applied() []string {
	return []string{"ignition.version", "storage.files", "storage.directories", "storage.links", "systemd.units", "passwd.users"}
}

// refuseOthers reports everything in a config that is not applied. On a running machine it
// skips settings that only an installation can change, which compare handles.
func (d *MachineConfig) refuseOthers(config document.Node, host Host) {
	places := pathsOf(d.parts)
	for key, n := range config.Members() {
		prefix := key + "."
		known := slices.ContainsFunc(applied(), func(name string) bool { return strings.HasPrefix(name, prefix) })
		if host.Has == nil && !host.Author && !known {
			refuse(n)
			continue
		}
		n.Object()
		for name, inner := range n.Members() {
			switch {
			case slices.Contains(applied(), key+"."+name), places[n.Path], places[inner.Path]:
			case key == "passwd" && name == "users":
				if slices.ContainsFunc(inner.Items(), func(user document.Node) bool { return !places[user.Path] }) {
					refuse(n)
				}
			default:
				refuse(inner)
			}
		}
	}
}

func refuse(n document.Node) {
	if !n.IsEmpty() {
		n.Fail("not implemented: of spec.config only files, directories, links, systemd units, SSH keys and password of core are applied")
	}
}

// parseIgnition parses and validates a config with Ignition's packages. What they warn about is
// applied as the config says.
func parseIgnition(config document.Node) (types.Config, bool) {
	if v := config.Get("ignition").Get("version"); strings.HasPrefix(v.Text(), "2.") {
		v.Report.Add(problem.Errorf(v.Path, "not implemented: an Ignition config of version %s", v.Text()).WithHint("use version 3; pivotctl config merge converts it"))
		return types.Config{}, false
	}
	parsed, problems := ignition.Parse(config.JSON())
	for i := range problems {
		at, _ := config.Find(document.Steps(problems[i].Path)...)
		problems[i].Path = at.Path
	}
	config.Report.Add(problems...)
	return parsed, !problems.Failed()
}
