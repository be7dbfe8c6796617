package machineconfig

import (
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
)

// entriesOf returns the entries that an Ignition config requests, including the state of units.
// The config of an encapsulated file is normally empty, because Ignition has applied it in the
// initramfs. The version of an empty config does not matter: servers write the one that the
// client requested.
func (d *Desired) entriesOf(config document.Node, host Host) (none Asked) {
	if !hasContent(config) {
		return none
	}
	d.refuseOthers(config, host)
	parsed, ok := parseIgnition(config)
	if !ok {
		return none
	}
	asked, files := entriesOf(config, parsed, d.partPaths()), config.Get("storage").Get("files")
	checkPinning(files, parsed, asked.Entries, host)
	if host.Unsupported != accept {
		checkOwn(files, parsed, asked.Entries, host)
	}
	return asked
}

// checkOwn rejects files that pivot itself reads and could not. One that the machine has is no error:
// it is still replaced and removed as any other.
func checkOwn(n document.Node, config ignition.Config, all []hostfiles.File, host Host) {
	for _, f := range all {
		parse := ParserOf(f.Path)
		if parse == nil || f.Kind != hostfiles.KindFile || host.Has != nil && slices.ContainsFunc(host.Has.Entries, func(has hostfiles.File) bool { return has.Entry == f.Entry }) {
			continue
		}
		if err := parse(f.Content); err != nil {
			fileNode(n, config, f.Path).Fail("%v", err)
		}
	}
}

// fileNode returns the node of the file with a path in n, the list of files; n if there is none.
func fileNode(n document.Node, config ignition.Config, path string) document.Node {
	if i := slices.IndexFunc(config.Storage.Files, func(f types.File) bool { return f.Path == path }); i >= 0 {
		return n.Items()[i]
	}
	return n
}

// checkPinning checks the files of CPU partitioning for consistency with each other and with
// the machine's CPUs. What another file of the machine can supply is left to the check of the machine.
func checkPinning(n document.Node, config ignition.Config, all []hostfiles.File, host Host) {
	contents := map[string][]byte{}
	for _, f := range all {
		if pinning.IsRead(f.Path) && f.Kind == hostfiles.KindFile {
			contents[f.Path] = f.Content
		}
	}
	for _, p := range pinning.Inspect(pinning.Input{Files: contents, Machine: pinning.CPUsOnly(host.CPUs), Partial: true}).Problems {
		n.Report.Add(p.Within(fileNode(n, config, p.Path).Path, "file "+p.Path+": "))
	}
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
func (d *Desired) refuseOthers(config document.Node, host Host) {
	places := d.partPaths()
	for key, n := range config.Members() {
		prefix := key + "."
		known := slices.ContainsFunc(applied(), func(name string) bool { return strings.HasPrefix(name, prefix) })
		if host.Has == nil && !known {
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
		v.Report.Add(problem.Errorf(v.Path, "not implemented: an Ignition config of version %s", v.Text()).WithHint("use version 3"))
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
