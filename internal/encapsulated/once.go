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

// Some of what a MachineConfig can say only an installation does: disks and what is on
// them, users and groups, FIPS mode. On a machine that runs it may stay as it is. What
// becomes of a difference is the administrator's choice.
// Source: the table of the machine-config operator (pkg/controller/common/reconcile.go).

// Unsupported is the choice for what cannot be changed on a machine that runs.
type Unsupported string

const (
	Stop    Unsupported = "stop"    // an error for each, and nothing is applied; also ""
	Warn    Unsupported = "warn"    // a warning for each, and the rest is applied
	Replace Unsupported = "replace" // the caller says that the machine must be replaced

	// accept is for what the machine has: it is as it is.
	accept Unsupported = "accept"
)

// LeftOutPath is where a system keeps the names of what was left out of its MachineConfig:
// a JSON array of strings. Its record does not have these parts.
const LeftOutPath = "/etc/pivot/left-out.json"

// coreUser is the one user who is not an installation's alone.
const coreUser = "core"

// part is something that only an installation does: a member below spec, or an item of a
// list there.
type part struct {
	path  []string // of the member
	key   string   // by which member an item is named; "": it is no item
	item  string   // its name
	value string   // in JSON, one form for each meaning; "" if nothing is asked
	at    string   // where it stands in the document
}

// is reports whether two parts are of one thing.
func (p part) is(other part) bool { return slices.Equal(p.path, other.path) && p.item == other.item }

// name is the part's name for people.
func (p part) name() string {
	name := strings.Join(p.path, ".")
	if p.item != "" {
		name += " " + p.item
	}
	return name
}

// below is a member below a value.
func below(n document.Node, path []string) document.Node {
	for _, name := range path {
		n = n.Get(name)
	}
	return n
}

// partsOf are the parts of a spec that only an installation does.
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

// differing are the parts that a spec asks for otherwise than the machine has them: each as
// the machine has it.
func (d *Desired) differing(asked document.Node, has *Desired) (different []part) {
	for _, p := range d.parts {
		have := p
		if have.value = has.valueOf(p); have.value != p.value {
			different = append(different, have)
		}
	}
	for _, have := range has.parts {
		if slices.ContainsFunc(d.parts, have.is) || have.key != "" && d.valueOf(have) != "" {
			continue // the same, or an item that is an ordinary one now
		}
		have.at = asked.Path
		for _, name := range have.path {
			have.at += jsonpath.Member(name)
		}
		different = append(different, have)
	}
	return different
}

// valueOf is what a MachineConfig says of a part, or of an ordinary item in its place; "" if
// that is nothing.
func (d *Desired) valueOf(p part) string {
	if i := slices.IndexFunc(d.parts, p.is); i >= 0 {
		return d.parts[i].value
	}
	if p.key == "" || d.asked == nil { // of a machine that never had one
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

// compare holds what only an installation does against what the machine has.
func (d *Desired) compare(asked document.Node, host Host) {
	d.parts = partsOf(asked)
	if host.Unsupported == accept {
		return
	}
	for i, p := range d.differing(asked, host.Has) {
		d.kept = append(d.kept, p)
		d.LeftOut = append(d.LeftOut, p.name())
		switch host.Unsupported {
		case Warn:
			asked.Report.Warn(p.at, "left out: %s differs from what the machine has, and only an installation can change it", p.name())
		case Stop, "":
			stop := problem.Errorf(p.at, "%s differs from what the machine has, and only an installation can change it", p.name())
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

// keepVersion has the record's config be of the version that the machine's is of, if parts of
// that are kept and the new one is of an earlier version, which may not know them, or of none.
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

// minorOf is the N of the version 3.N.0 of an Ignition config; -1 of what is none.
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

// keep adds the machine's own entries in place of those that are left out.
func (d *Desired) keep(has *Desired) {
	for _, p := range d.kept {
		for _, f := range has.Entries {
			if p.key == "path" && f.Path == p.item {
				d.Entries = append(d.Entries, f)
			}
		}
	}
}

// SetFIPS says whether the machine that has the MachineConfig really runs in FIPS mode.
func (d *Desired) SetFIPS(on bool) {
	fips := part{path: []string{"fips"}, value: strconv.FormatBool(on)}
	d.FIPS, d.parts = on, append(slices.DeleteFunc(d.parts, fips.is), fips)
}

// ours are the places of items that only an installation does, by their paths in the
// document.
func (d *Desired) ours() map[string]bool {
	places := map[string]bool{}
	for _, p := range d.parts {
		places[p.at] = true
	}
	return places
}

// canonical is JSON in one form for each meaning: what says nothing is left out. Nothing at
// all is "".
func canonical(text []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil { // a value that cannot be written, which its reader reports
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

// pruned is a value without what says nothing; nil if nothing is left.
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
			} // else it is empty now, and of its kind: no list may have null in its place
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

// put puts a part, as the machine has it, into a spec.
func (p part) put(spec map[string]any) {
	var value any
	if p.value != "" && json.Unmarshal([]byte(p.value), &value) != nil {
		return // it was JSON
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
