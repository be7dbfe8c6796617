package machineconfig

import (
	"encoding/json"
	"fmt"
	"strings"

	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/vcontext/path"
	"github.com/coreos/vcontext/report"

	"machine-pivot/hostfiles"
	"machine-pivot/pinning"
)

// files are the pinning files of an Ignition config. An encapsulated file's
// config is normally empty, since Ignition has done its part in the initramfs,
// and then its version does not matter: servers write the one that was asked for.
func files(config node, host Host) []hostfiles.File {
	if !config.object() || !wellFormed(config) || !hasContent(config) {
		return nil
	}
	refuseOthers(config)
	parsed, ok := parseIgnition(config)
	if !ok {
		return nil
	}
	var all []hostfiles.File
	nodes := config.get("storage").get("files").items()
	contents := map[string][]byte{}
	paths := map[string]string{} // JSON paths, by path
	for i, f := range parsed.Storage.Files {
		n := nodes[i]
		if !pinning.IsPinningPath(f.Path) {
			n.fail("not implemented: file %s; of spec.config only CPU pinning files are applied (%s/*, %s)", f.Path, pinning.DropInDir, pinning.KubeletPath)
			continue
		}
		file, err := file(f)
		if err != nil {
			n.fail("file %s: %v", f.Path, err)
			continue
		}
		all = append(all, file)
		contents[f.Path], paths[f.Path] = file.Content, n.path
	}
	for _, p := range pinning.Check(contents, host.CPUs) {
		at, ok := paths[p.Path]
		if !ok {
			at = config.get("storage").get("files").path
		}
		add := config.report.fail
		if p.Severity == pinning.Warning {
			add = config.report.warn
		}
		add(at, "file %s: %s", p.Path, p.Message)
	}
	return all
}

// wellFormed checks the types of a config's upper two levels, which hold for
// every version: objects of lists, and objects and the version in "ignition".
func wellFormed(config node) bool {
	before := len(*config.report)
	for _, key := range config.keys() {
		n := config.get(key)
		n.object()
		for _, inner := range n.keys() {
			switch {
			case key != "ignition":
				n.get(inner).items()
			case inner == "version":
				n.get(inner).text()
			default:
				n.get(inner).object()
			}
		}
	}
	return len(*config.report) == before
}

// hasContent reports whether a config says more than its version.
func hasContent(config node) bool {
	for _, key := range config.keys() {
		n := config.get(key)
		if key != "ignition" && !n.isEmpty() {
			return true
		}
		for _, inner := range n.keys() {
			if key == "ignition" && inner != "version" && !n.get(inner).isEmpty() {
				return true
			}
		}
	}
	return false
}

// refuseOthers names everything in a config but its files.
func refuseOthers(config node) {
	refuse := func(n node) {
		if !n.isEmpty() {
			n.fail("not implemented: of spec.config only CPU pinning files are applied")
		}
	}
	for _, key := range config.keys() {
		n := config.get(key)
		switch key {
		case "ignition", "storage":
			n.object()
			for _, inner := range n.keys() {
				if key+"."+inner != "ignition.version" && key+"."+inner != "storage.files" {
					refuse(n.get(inner))
				}
			}
		default:
			refuse(n)
		}
	}
}

// parseIgnition lets Ignition itself parse and validate a config.
func parseIgnition(config node) (types.Config, bool) {
	version := config.get("ignition").get("version")
	object := config.value.(map[string]any)
	if v := version.text(); strings.HasPrefix(v, "2.") {
		version.fail("not implemented: files of an Ignition config of version %s; use version 3", v)
		return types.Config{}, false
	} else if v == "3.6.0" {
		// Installers write it for configs that 3.5 knows all members of; unknown ones are errors below.
		object = withVersion(object, "3.5.0")
	}
	raw, err := json.Marshal(object)
	if err != nil {
		config.fail("cannot be written as JSON: %v", err)
		return types.Config{}, false
	}
	parsed, rep, err := ignition.ParseCompatibleVersion(raw)
	failed := err != nil
	for _, e := range rep.Entries {
		// Unknown members are warnings to Ignition; here they would be lost.
		if e.Kind == report.Error || e.Kind == report.Warn {
			failed = true
			config.report.fail(config.path+jsonPath(e.Context), "%s", e.Message)
		}
	}
	if err != nil && len(rep.Entries) == 0 {
		version.fail("%v", err) // only the version is judged without an entry
	}
	return parsed, !failed
}

// jsonPath is the place of a problem below the config, as Ignition knows it.
func jsonPath(at path.ContextPath) string {
	var b strings.Builder
	for _, step := range at.Path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		default:
			b.WriteString(member(fmt.Sprint(step)))
		}
	}
	return b.String()
}

// withVersion is a config that claims another version.
func withVersion(config map[string]any, version string) map[string]any {
	changed := map[string]any{}
	for key, value := range config {
		changed[key] = value
	}
	changed["ignition"] = map[string]any{"version": version}
	return changed
}
