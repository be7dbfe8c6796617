package authored

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/coreos/ign-converter/translate/v23tov30"
	v22 "github.com/coreos/ignition/config/v2_2"
	old "github.com/coreos/ignition/config/v2_2/types"
	v23 "github.com/coreos/ignition/config/v2_3"
	"github.com/coreos/ignition/config/validate"
	oldreport "github.com/coreos/ignition/config/validate/report"
	to31 "github.com/coreos/ignition/v2/config/v3_1/translate"
	to32 "github.com/coreos/ignition/v2/config/v3_2/translate"
	to33 "github.com/coreos/ignition/v2/config/v3_3/translate"
	to34 "github.com/coreos/ignition/v2/config/v3_4/translate"
	to35 "github.com/coreos/ignition/v2/config/v3_5/translate"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
)

// ParseIgnition reads a config of version 2.0 to 2.2, or of a version that ignition.Parse reads. The report
// has all errors.
func ParseIgnition(raw []byte) (ignition.Config, problem.Report) {
	version, wrong := ignition.VersionOf(raw)
	if wrong.Failed() {
		return ignition.Parse(raw) // which reports all problems
	}
	return parseIgnition(raw, version)
}

// parseIgnition is ParseIgnition for a config of a known version.
func parseIgnition(raw []byte, version string) (ignition.Config, problem.Report) {
	if !strings.HasPrefix(version, "2.") {
		return ignition.ParseVersion(raw, version)
	}
	if wrong := ignition.CheckSize(raw); wrong.Failed() {
		return ignition.Config{}, wrong
	}
	return parse2(raw, version)
}

// parse2 reads a config of version 2 and translates it to version 3.
func parse2(raw []byte, version string) (ignition.Config, problem.Report) {
	if !slices.Contains([]string{"2.0.0", "2.1.0", "2.2.0"}, version) {
		return ignition.Config{}, problem.Report{problem.Errorf(".ignition.version", "of version 2 only 2.0.0 to 2.2.0 are supported")}
	}
	parsed, problems := read2(raw, version)
	if problems.Failed() {
		return ignition.Config{}, problems
	}
	if problems = append(problems, unsupported(parsed)...); problems.Failed() {
		return ignition.Config{}, problems
	}
	collapse(&parsed)
	// The file system "root" is the booted one.
	v30, err := v23tov30.Translate(v23.Translate(parsed), map[string]string{"root": "/"})
	if err != nil {
		problems.Fail("", "it cannot be translated to version 3: %v", err)
		return ignition.Config{}, problems
	}
	config := to35.Translate(to34.Translate(to33.Translate(to32.Translate(to31.Translate(v30)))))
	return config, append(problems, validate3(config)...)
}

// maxPlaced is the maximum size, in bytes, of a text that is given to version 2's own parser to
// find the places of problems. For each value it counts the lines again from the start.
const maxPlaced = 256 << 10

// read2 reads a config of version 2 and validates it with Ignition's package for version 2.
func read2(raw []byte, version string) (old.Config, problem.Report) {
	if config, problems, ok := readUnplaced2(raw); ok && version == newest2 && (len(problems) == 0 || len(raw) > maxPlaced) {
		return config, problems
	}
	if len(raw) > maxPlaced {
		return old.Config{}, problem.Report{problem.Errorf("", "it has more than %d bytes and so must be of version %s at least, and of no member that is unknown there", maxPlaced, newest2)}
	}
	parsed, rep, err := v22.Parse(raw)
	if err != nil {
		if problems := ignition.Mistyped(raw, reflect.TypeFor[old.Config]()); problems.Failed() {
			return parsed, problems
		}
	}
	problems := problems2(raw, rep)
	if err != nil && len(problems) == 0 {
		problems.Fail("", "%v", err)
	}
	return parsed, problems
}

// readUnplaced2 reads a config of version 2.2, if it is one. It reports problems without their
// places, each only once.
func readUnplaced2(raw []byte) (old.Config, problem.Report, bool) {
	var config old.Config
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&config); err != nil {
		return config, nil, false
	}
	var problems problem.Report
	for _, e := range validate.ValidateWithoutSource(reflect.ValueOf(config)).Entries {
		if e.Kind == oldreport.EntryInfo {
			continue
		}
		p := problem.Warningf("", "in it: %s", e.Message)
		if e.Kind == oldreport.EntryError {
			p.Severity = problem.Error
		}
		if !slices.Contains(problems, p) {
			problems = append(problems, p)
		}
	}
	return config, problems, true
}

// newest2 is the newest version 2 that machine-config servers use.
const newest2 = "2.2.0"

// validate3 validates a translated config like a parsed one.
func validate3(config ignition.Config) problem.Report {
	_, problems := ignition.Parse(ignition.Marshal(config))
	return problems
}

// problems2 converts the report of version 2's parser, which has lines and columns.
func problems2(raw []byte, rep oldreport.Report) problem.Report {
	var problems problem.Report
	for _, e := range rep.Entries {
		if e.Kind == oldreport.EntryInfo {
			continue
		}
		path := ""
		if e.Line > 0 {
			path = pathAt(raw, offset(raw, e.Line, e.Column))
		}
		if e.Kind == oldreport.EntryError || strings.HasPrefix(e.Message, "Config has unrecognized key") {
			problems.Fail(path, "%s", e.Message)
		} else {
			problems.Warn(path, "%s", e.Message)
		}
	}
	return problems
}

// offset returns the offset of the byte before a line and a column, both counted from 1: the report has the ends of values.
func offset(raw []byte, line, column int) int64 {
	at := 0
	for ; line > 1; line-- {
		at += slices.Index(raw[at:], '\n') + 1
	}
	return int64(min(at+column, len(raw)) - 2)
}

// unsupported reports what would be lost or misplaced: entries on other file systems than the
// booted one, users other than core, and files in several parts.
func unsupported(config old.Config) problem.Report {
	var problems problem.Report
	node := func(list string, i int, n old.Node) {
		if n.Filesystem != "root" {
			problems.Fail(document.PathOf("storage", list, i, "filesystem"), "only the file system root is supported, not %.100q", n.Filesystem)
		}
	}
	for i, f := range config.Storage.Files {
		node("files", i, f.Node)
	}
	for i, d := range config.Storage.Directories {
		node("directories", i, d.Node)
	}
	for i, l := range config.Storage.Links {
		node("links", i, l.Node)
	}
	problems.Add(appended(config.Storage.Files)...)
	for i, u := range config.Passwd.Users {
		if u.Name != "core" {
			problems.Fail(document.PathOf("passwd", "users", i), "only the user core is supported, not %.100q", u.Name)
		}
	}
	return problems
}

// appended reports files that are made of several entries. Neither version 3 nor the machine-config
// operator supports that.
func appended(files []old.File) problem.Report {
	appends := map[string]bool{} // by path: whether an earlier entry appends
	var problems problem.Report
	for i, f := range files {
		before, again := appends[f.Path]
		if again && (before || f.Append) {
			problems.Add(problem.Errorf(document.PathOf("storage", "files", i), "%.100q is there before, and appended to", f.Path).
				WithHint("write its whole text as one entry of storage.files"))
		}
		appends[f.Path] = before || f.Append
	}
	return problems
}

// collapse removes duplicates, which version 2 allows and version 3 does not. It orders the rest like the
// machine-config operator, because the name of a rendered MachineConfig has its hash. Files and units are in reverse
// order. The last file wins, and the last unit, which inherits drop-ins from earlier ones unless it has one of the same
// name. The keys of the user core are merged.
func collapse(config *old.Config) {
	config.Storage.Files = lastOf(config.Storage.Files, func(f old.File) string { return f.Path },
		func(later, _ old.File) old.File { return later })
	config.Systemd.Units = lastOf(config.Systemd.Units, func(u old.Unit) string { return u.Name }, keepDropIns)
	config.Passwd.Users = lastOf(config.Passwd.Users, func(u old.PasswdUser) string { return u.Name }, uniteKeys)
	for i := range config.Passwd.Users {
		user := &config.Passwd.Users[i]
		user.SSHAuthorizedKeys = unique(user.SSHAuthorizedKeys)
	}
}

// lastOf keeps the last entry of each key, in reverse order. join merges an earlier entry into the
// one that is kept.
func lastOf[T any](list []T, key func(T) string, join func(later, earlier T) T) []T {
	at := map[string]int{}
	var kept []T
	for _, entry := range slices.Backward(list) {
		if i, again := at[key(entry)]; again {
			kept[i] = join(kept[i], entry)
			continue
		}
		at[key(entry)] = len(kept)
		kept = append(kept, entry)
	}
	return kept
}

func keepDropIns(later, earlier old.Unit) old.Unit {
	later.Dropins = slices.Clone(later.Dropins)
	for _, d := range earlier.Dropins {
		if !slices.ContainsFunc(later.Dropins, func(l old.SystemdDropin) bool { return l.Name == d.Name }) {
			later.Dropins = append(later.Dropins, d)
		}
	}
	return later
}

func uniteKeys(later, earlier old.PasswdUser) old.PasswdUser {
	later.SSHAuthorizedKeys = slices.Concat(later.SSHAuthorizedKeys, earlier.SSHAuthorizedKeys)
	return later
}

// unique removes duplicates from a list; the first of each element is kept.
func unique[T comparable](list []T) []T {
	seen := map[T]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(element T) bool {
		again := seen[element]
		seen[element] = true
		return again
	})
}
