package machineconfig

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/document"
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

// part is a setting that only an installation can change: a member below spec, or an item of a
// list there.
type part struct {
	place place
	value string // canonical JSON; "" if absent
	at    string // path in the document
}

// is reports whether two parts are the same setting.
func (p part) is(other part) bool { return slices.Equal(p.place, other.place) }

// name returns the part's name for messages.
func (p part) name() string { return p.place.String() }

// partsOf returns the settings of a spec that only an installation can change.
func partsOf(asked document.Node) []part {
	fips := asked.Get("fips")
	return append(partsIn(asked.Get("config")), part{place: members("fips"), value: strconv.FormatBool(fips.Boolean()), at: fips.Path})
}

// partsIn returns the settings of a config that only an installation can change.
func partsIn(config document.Node) (all []part) {
	at := members("config")
	add := func(p place, n document.Node) {
		if value := canonical(n.JSON()); value != "" {
			all = append(all, part{place: p, value: value, at: n.Path})
		}
	}
	for name, n := range config.Get("ignition").Members() {
		if name != "version" {
			add(at.member("ignition").member(name), n)
		}
	}
	storage, passwd := config.Get("storage"), config.Get("passwd")
	for _, name := range []string{"disks", "raid", "filesystems", "luks"} {
		add(at.member("storage").member(name), storage.Get(name))
	}
	add(at.member("passwd").member("groups"), passwd.Get("groups"))
	add(at.member("kernelArguments"), config.Get("kernelArguments"))
	for _, user := range passwd.Get("users").Items() {
		one := at.member("passwd").member("users").item("name", user.Get("name").Text())
		if installs("users", user) {
			add(one, user)
			continue
		}
		for name, setting := range user.Members() {
			if !ofCore(name) {
				add(one.member(name), setting)
			}
		}
	}
	for _, name := range []string{"files", "links"} {
		for _, item := range storage.Get(name).Items() {
			if installs(name, item) {
				add(at.member("storage").member(name).item("path", item.Get("path").Text()), item)
			}
		}
	}
	return all
}

// installs reports whether an element of one of a config's lists (files, links or users) is one that only an installation can
// apply as a whole.
func installs(list string, item document.Node) bool {
	switch list {
	case "files":
		return !item.Get("append").IsEmpty()
	case "links":
		return item.Get("hard").Boolean()
	case "users":
		return !item.Get("name").Is(core)
	}
	return false
}

// differing returns the settings that have other values in a spec than on the machine, with the machine's values.
func (d *MachineConfig) differing(asked document.Node, has *MachineConfig) (different []part) {
	for _, p := range d.parts {
		have := p
		if have.value = has.valueOf(p); have.value != p.value {
			different = append(different, have)
		}
	}
	for _, have := range has.parts {
		if slices.ContainsFunc(d.parts, have.is) || d.valueOf(have) != "" {
			continue // compared above, or now an ordinary item
		}
		have.at = have.place.nearest(asked)
		different = append(different, have)
	}
	return different
}

// valueOf returns the value of a setting, or of an ordinary item in its place, or "" if there
// is none.
func (d *MachineConfig) valueOf(p part) string {
	if i := slices.IndexFunc(d.parts, p.is); i >= 0 {
		return d.parts[i].value
	}
	if d.asked == nil { // the machine never had a MachineConfig
		return ""
	}
	var report problem.Report
	asked, _ := document.ParseJSON(d.asked, &report)
	return canonical(p.place.in(asked).JSON())
}

// compare compares the settings that only an installation can change with those of the machine.
func (d *MachineConfig) compare(asked document.Node, host Host) {
	if host.Has == nil && !host.Author {
		return
	}
	d.parts = partsOf(asked)
	if host.Author || host.Unsupported == accept {
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
		if p.is(part{place: members("fips")}) {
			d.FIPS = p.value == "true"
		}
	}
	d.keepVersion(asked, host.Has)
}

// keepVersion has the record use the machine's config version, if it keeps parts of the machine's config and the new
// one has no version, or one that is too early.
func (d *MachineConfig) keepVersion(asked document.Node, has *MachineConfig) {
	if !slices.ContainsFunc(d.kept, func(p part) bool { return p.place[0].name == "config" && p.value != "" }) {
		return
	}
	version := part{place: members("config", "ignition", "version")}
	var report problem.Report
	had, ok := document.ParseJSON(has.asked, &report)
	if was := version.place.in(had); ok && minorOf(was.Text()) > minorOf(version.place.in(asked).Text()) {
		version.value = string(was.JSON())
		d.kept = append(d.kept, version)
	}
}

// minorOf returns the minor version of an Ignition config of version 3, or -1 if it is none.
func minorOf(version string) int {
	fields := strings.Split(version, ".")
	if len(fields) != 3 || fields[0] != "3" {
		return -1
	}
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		return -1
	}
	return n
}

// keep adds the machine's entries that replace left-out ones.
func (d *MachineConfig) keep(host Host) {
	for _, p := range d.kept {
		for _, f := range host.Has.Entries {
			if last := p.place[len(p.place)-1]; last.key == "path" && f.Path == hostfiles.Resolved(last.value) {
				d.Entries = append(d.Entries, f)
			}
		}
	}
}

// SetFIPS sets whether the machine runs in FIPS mode, regardless of what its MachineConfig
// says.
func (d *MachineConfig) SetFIPS(on bool) {
	fips := part{place: members("fips"), value: strconv.FormatBool(on)}
	d.FIPS, d.parts = on, append(slices.DeleteFunc(d.parts, fips.is), fips)
}

// pathsOf returns the document paths of settings.
func pathsOf(parts []part) map[string]bool {
	paths := map[string]bool{}
	for _, p := range parts {
		paths[p.at] = true
	}
	return paths
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
	p.place.put(spec, value)
}
