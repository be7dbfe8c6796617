package encapsulated

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/jsonpath"
	"machine-pivot/internal/problem"
)

// Some settings of a MachineConfig can be applied only at installation: disks and their
// contents, users and groups, FIPS mode. A running machine is accepted if they are unchanged.
// The administrator decides what happens if they differ. Source: the table of the
// machine-config operator (pkg/controller/common/reconcile.go).

// Unsupported is the policy for changes that are not possible on a running machine.
type Unsupported string

const (
	Stop    Unsupported = "stop"    // report each as an error and apply nothing; also ""
	Warn    Unsupported = "warn"    // report each as a warning and apply the rest
	Replace Unsupported = "replace" // the caller reports that the machine must be replaced

	// accept is for the machine's current MachineConfig, which is not compared.
	accept Unsupported = "accept"
)

// LeftOutPath is where a system keeps the names of the settings that were left out of its
// MachineConfig, as a JSON array of strings. Its record has the machine's values instead.
const LeftOutPath = "/etc/pivot/left-out.json"

// coreUser is the only user whose settings can change after installation.
const coreUser = "core"

// part is a setting that only an installation can change: a member below spec, or an item of a
// list there.
type part struct {
	path  []string // path of the member or list
	key   string   // member that identifies an item of the list; "": not an item
	item  string   // value of that member
	value string   // canonical JSON; "" if absent
	at    string   // path in the document
}

// is reports whether two parts are the same setting.
func (p part) is(other part) bool { return slices.Equal(p.path, other.path) && p.item == other.item }

// name returns the part's name for messages.
func (p part) name() string {
	name := strings.Join(p.path, ".")
	if p.item != "" {
		name += " " + p.item
	}
	return name
}

// below returns the member at a path below n.
func below(n document.Node, path []string) document.Node {
	for _, name := range path {
		n = n.Get(name)
	}
	return n
}

// partsOf returns the settings of a spec that only an installation can change.
func partsOf(asked document.Node) (all []part) {
	config := asked.Get("config")
	whole := func(path ...string) {
		n := below(asked, path)
		all = append(all, part{path: path, value: canonical(n.JSON()), at: n.Path})
	}
	items := func(key string, is func(document.Node) bool, path ...string) {
		for _, item := range below(asked, path).Items() {
			if is(item) {
				all = append(all, part{path: path, key: key, item: item.Get(key).Text(), value: canonical(item.JSON()), at: item.Path})
			}
		}
	}
	for name := range config.Get("ignition").Members() {
		if name != "version" {
			whole("config", "ignition", name)
		}
	}
	for _, name := range []string{"disks", "raid", "filesystems", "luks"} {
		whole("config", "storage", name)
	}
	whole("config", "passwd", "groups")
	whole("config", "kernelArguments")
	items("name", func(n document.Node) bool { return !n.Get("name").Is(coreUser) }, "config", "passwd", "users")
	items("path", func(n document.Node) bool { return !n.Get("append").IsEmpty() }, "config", "storage", "files")
	items("path", func(n document.Node) bool { return n.Get("hard").Boolean() }, "config", "storage", "links")
	all = slices.DeleteFunc(all, func(p part) bool { return p.value == "" })
	return append(all, part{path: []string{"fips"}, value: strconv.FormatBool(asked.Get("fips").Boolean()), at: asked.Get("fips").Path})
}

// differing returns the settings whose values in a spec differ from the machine's, with the
// machine's values.
func (d *Desired) differing(asked document.Node, has *Desired) (different []part) {
	for _, p := range d.parts {
		have := p
		if have.value = has.valueOf(p); have.value != p.value {
			different = append(different, have)
		}
	}
	for _, have := range has.parts {
		if slices.ContainsFunc(d.parts, have.is) || have.key != "" && d.valueOf(have) != "" {
			continue // compared above, or now an ordinary item
		}
		have.at = asked.Path
		for _, name := range have.path {
			have.at += jsonpath.Member(name)
		}
		different = append(different, have)
	}
	return different
}

// valueOf returns the value of a setting, or of an ordinary item in its place, or "" if there
// is none.
func (d *Desired) valueOf(p part) string {
	if i := slices.IndexFunc(d.parts, p.is); i >= 0 {
		return d.parts[i].value
	}
	if p.key == "" || d.asked == nil { // the machine never had a MachineConfig
		return ""
	}
	var report problem.Report
	asked, _ := document.ParseJSON(d.asked, &report)
	for _, item := range below(asked, p.path).Items() {
		if item.Get(p.key).Is(p.item) {
			return canonical(item.JSON())
		}
	}
	return ""
}

// compare compares the settings that only an installation can change with those of the machine.
func (d *Desired) compare(asked document.Node, host Host) {
	d.parts = partsOf(asked)
	if host.Unsupported == accept {
		return
	}
	for i, p := range d.differing(asked, host.Has) {
		d.kept = append(d.kept, p)
		d.LeftOut = append(d.LeftOut, p.name())
		change := problem.Change{Field: p.name(), Old: shown(p.value), New: shown(d.valueOf(p))}
		switch host.Unsupported {
		case Warn:
			left := problem.Warningf(p.at, "left out: %s", describe(change))
			left.Change = &change
			asked.Report.Add(left)
		case Stop, "":
			stop := problem.Errorf(p.at, "%s", describe(change))
			stop.Change = &change
			if i == 0 {
				stop = stop.WithHint("--unsupported=warn applies the rest, --unsupported=replace asks for another machine")
			}
			asked.Report.Add(stop)
		}
		if p.is(part{path: []string{"fips"}}) {
			d.FIPS = p.value == "true"
		}
	}
	d.keepVersion(asked, host.Has)
}

// keepVersion makes the record use the machine's config version if parts of the machine's
// config are kept and the new config has an earlier version, which may not support them, or
// none.
func (d *Desired) keepVersion(asked document.Node, has *Desired) {
	if !slices.ContainsFunc(d.kept, func(p part) bool { return p.path[0] == "config" && p.value != "" }) {
		return
	}
	version := part{path: []string{"config", "ignition", "version"}}
	var report problem.Report
	had, ok := document.ParseJSON(has.asked, &report)
	if was := below(had, version.path); ok && minorOf(was.Text()) > minorOf(below(asked, version.path).Text()) {
		version.value = string(was.JSON())
		d.kept = append(d.kept, version)
	}
}

// minorOf returns the minor version of an Ignition config, or -1 if the version is invalid.
func minorOf(version string) int {
	fields := strings.Split(version, ".")
	if len(fields) != 3 {
		return -1
	}
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		return -1
	}
	return n
}

// keep adds the machine's entries that replace left-out ones.
func (d *Desired) keep(has *Desired) {
	for _, p := range d.kept {
		for _, f := range has.Entries {
			if p.key == "path" && f.Path == p.item {
				d.Entries = append(d.Entries, f)
			}
		}
	}
}

// SetFIPS sets whether the machine runs in FIPS mode, regardless of what its MachineConfig
// says.
func (d *Desired) SetFIPS(on bool) {
	fips := part{path: []string{"fips"}, value: strconv.FormatBool(on)}
	d.FIPS, d.parts = on, append(slices.DeleteFunc(d.parts, fips.is), fips)
}

// partPaths returns the document paths of the settings that only an installation can change.
func (d *Desired) partPaths() map[string]bool {
	places := map[string]bool{}
	for _, p := range d.parts {
		places[p.at] = true
	}
	return places
}

// canonical returns JSON in a canonical form without empty values, or "" if nothing is left.
func canonical(text []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil { // invalid; reported elsewhere
		return string(text)
	}
	if value = pruned(value); value == nil {
		return ""
	}
	form, err := json.Marshal(value)
	if err != nil {
		return string(text)
	}
	return string(form)
}

// pruned returns a value without empty values, or nil if nothing is left.
func pruned(value any) any {
	switch v := value.(type) {
	case string:
		if v == "" {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			if item := pruned(v[i]); item != nil {
				v[i] = item
			} // otherwise keep the emptied item: a list must not have null in its place
		}
	case map[string]any:
		for name, member := range v {
			if v[name] = pruned(member); v[name] == nil {
				delete(v, name)
			}
		}
		if len(v) == 0 {
			return nil
		}
	}
	return value
}

// put sets a part, with the machine's value, in a spec.
func (p part) put(spec map[string]any) {
	var value any
	if p.value != "" && json.Unmarshal([]byte(p.value), &value) != nil {
		return // cannot happen: the value is JSON
	}
	at, last := spec, len(p.path)-1
	for _, name := range p.path[:last] {
		below, ok := at[name].(map[string]any)
		if !ok {
			below = map[string]any{}
			at[name] = below
		}
		at = below
	}
	name := p.path[last]
	if p.key == "" {
		if at[name] = value; value == nil {
			delete(at, name)
		}
		return
	}
	list, _ := at[name].([]any)
	list = slices.DeleteFunc(list, func(item any) bool {
		members, ok := item.(map[string]any)
		return ok && members[p.key] == p.item
	})
	if value != nil {
		list = append(list, value)
	}
	at[name] = list
}
