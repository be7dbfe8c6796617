package encapsulated

import (
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
)

// files are the pinning files of an Ignition config. An encapsulated file's
// config is normally empty, since Ignition has done its part in the initramfs,
// and then its version does not matter: servers write the one that was asked for.
func files(config document.Node, host Host) []hostfiles.File {
	if !config.Object() || !wellFormed(config) || !hasContent(config) {
		return nil
	}
	refuseOthers(config)
	parsed, ok := parseIgnition(config)
	if !ok {
		return nil
	}
	var all []hostfiles.File
	nodes := config.Get("storage").Get("files").Items()
	contents := map[string][]byte{}
	paths := map[string]string{} // JSON paths, by path
	for i, f := range parsed.Storage.Files {
		n := nodes[i]
		if !pinning.IsPinningPath(f.Path) {
			n.Fail("not implemented: file %s; of spec.config only CPU pinning files are applied (%s/*, %s)", f.Path, pinning.DropInDir, pinning.KubeletPath)
			continue
		}
		file, err := file(f)
		if err != nil {
			n.Fail("file %s: %v", f.Path, err)
			continue
		}
		all = append(all, file)
		contents[f.Path], paths[f.Path] = file.Content, n.Path
	}
	for _, p := range pinning.Check(contents, host.CPUs) {
		at, ok := paths[p.Path]
		if !ok {
			at = config.Get("storage").Get("files").Path
		}
		config.Report.Add(p.Within(at, "file "+p.Path+": "))
	}
	return all
}

// wellFormed checks the types of a config's upper two levels, which hold for
// every version: objects of lists, and objects and the version in "ignition".
func wellFormed(config document.Node) bool {
	before := len(*config.Report)
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

// hasContent reports whether a config says more than its version.
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

// refuseOthers names everything in a config but its files.
func refuseOthers(config document.Node) {
	refuse := func(n document.Node) {
		if !n.IsEmpty() {
			n.Fail("not implemented: of spec.config only CPU pinning files are applied")
		}
	}
	for key, n := range config.Members() {
		switch key {
		case "ignition", "storage":
			n.Object()
			for name, inner := range n.Members() {
				if key+"."+name != "ignition.version" && key+"."+name != "storage.files" {
					refuse(inner)
				}
			}
		default:
			refuse(n)
		}
	}
}

// parseIgnition lets Ignition parse and validate a config. A warning is an error
// here: what it is about would be done otherwise than it says.
func parseIgnition(config document.Node) (types.Config, bool) {
	if v := config.Get("ignition").Get("version"); strings.HasPrefix(v.Text(), "2.") {
		v.Report.Add(problem.Errorf(v.Path, "not implemented: files of an Ignition config of version %s", v.Text()).WithHint("use version 3"))
		return types.Config{}, false
	}
	parsed, problems := ignition.Parse(config.JSON())
	for i := range problems {
		problems[i].Severity = problem.Error
	}
	config.Report.Add(problems.Below(config.Path)...)
	return parsed, len(problems) == 0
}
