// Package ignition handles the Ignition configs that a MachineConfig may contain, versions 3.0
// to 3.6, as configs of one version: Config, which has the types of 3.5. It parses and upgrades them, merges
// them, reads inline contents, and downgrades them to the version that a machine understands.
// Package legacy adds version 2.
//
// Ignition's packages decide what a config means and whether it is valid; this package adds
// what they leave open. It does no I/O.
package ignition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"

	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/vcontext/report"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// Version is the version of Config.
const Version = "3.5.0"

// Config is an Ignition config of any supported version, converted to Version.
type Config = types.Config

// Parse parses a config of the versions 3.0 to 3.6. It reports all problems. Members that the config's version does not
// have are errors if they would be lost, and otherwise warnings: see lostMember. Paths in the report are relative to the config, such as
// .storage.files[0].mode; the config itself is "".
func Parse(raw []byte) (Config, problem.Report) {
	version, wrong := VersionOf(raw)
	if wrong.Failed() {
		return Config{}, append(wrong, CheckSize(raw)...)
	}
	return ParseVersion(raw, version)
}

// ParseVersion is Parse for a config of a known version, as from VersionOf.
func ParseVersion(raw []byte, version string) (Config, problem.Report) {
	if wrong := CheckSize(raw); wrong.Failed() {
		return Config{}, wrong
	}
	config, problems := parse3(raw, version)
	if Later(version) {
		problems = append(problems, newIn36(config)...)
	}
	return config, problems
}

// newIn36 returns warnings about what a config of version 3.6 asks for and Ignition does not do if it gets
// the same as an earlier version.
func newIn36(config Config) (problems problem.Report) {
	for i, f := range config.Storage.Files {
		warnOfMode(&problems, document.PathOf("storage", "files", i, "mode"), f.Mode)
	}
	for i, d := range config.Storage.Directories {
		warnOfMode(&problems, document.PathOf("storage", "directories", i, "mode"), d.Mode)
	}
	return problems
}

func warnOfMode(problems *problem.Report, path string, mode *int) {
	if mode != nil && *mode&0o7000 != 0 {
		problems.Warn(path, "Ignition sets setuid, setgid and sticky bits only for configs of version %s; those of earlier versions that pivot renders lose them", later)
	}
}

// Later reports whether a version that Parse accepts is later than Version, which is the last
// one that the machine-config operator accepts.
func Later(version string) bool { return version == later }

const later = "3.6.0"

// MaxMode returns the highest mode of files and directories that is applied for a config of a version.
// Before 3.6, Ignition ignores setuid, setgid and sticky bits, and the machine-config daemon takes none.
func MaxMode(version string) int {
	if Later(version) {
		return 0o7777
	}
	return 0o777
}

// VersionOf returns the version of a config, or a report if there is none.
func VersionOf(raw []byte) (string, problem.Report) {
	var config struct {
		Ignition struct {
			Version *string `json:"version"`
		} `json:"ignition"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return "", problem.Report{problem.Errorf("."+wrong.Field, "it is %s, not %s", article(wrong.Value), article(kindOf(wrong)))}
		}
		return "", problem.Report{problem.Errorf("", "it is not JSON: %v", err)}
	}
	if config.Ignition.Version == nil || *config.Ignition.Version == "" {
		missing := problem.Errorf(".ignition.version", "it is missing")
		return "", problem.Report{missing.WithHint("set ignition.version to the version of the specification, such as 3.4.0")}
	}
	return *config.Ignition.Version, nil
}

// Limits of a config. Ignition's validation compares each link with all other entries.
const (
	maxEntries = 50_000 // files, directories, links and units
	maxLinks   = 5_000
)

// CheckSize reports an error if a config exceeds the limits.
func CheckSize(raw []byte) problem.Report {
	if bytes.Count(raw, []byte("{"))+bytes.Count(raw, []byte("null")) <= maxLinks {
		return nil // whatever is an entry has one of them
	}
	var config struct {
		Storage struct{ Files, Directories, Links []json.RawMessage }
		Systemd struct{ Units []json.RawMessage }
	}
	if json.Unmarshal(raw, &config) != nil {
		return nil // the parser reports the error
	}
	if n := len(config.Storage.Links); n > maxLinks {
		return problem.Report{problem.Errorf(".storage.links", "it has %d elements, more than %d", n, maxLinks)}
	}
	if n := len(config.Storage.Files) + len(config.Storage.Directories) + len(config.Storage.Links) + len(config.Systemd.Units); n > maxEntries {
		return problem.Report{problem.Errorf("", "it has %d files, directories, links and units, more than %d", n, maxEntries)}
	}
	return nil
}

// kindOf returns the JSON type that was expected.
func kindOf(e *json.UnmarshalTypeError) string {
	if e.Type.Kind().String() == "struct" {
		return "object"
	}
	return e.Type.Kind().String()
}

func article(noun string) string {
	if noun != "" && strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// parse3 parses a config of version 3.
func parse3(raw []byte, version string) (Config, problem.Report) {
	config, rep, err := parseOf(version)(raw)
	if err != nil {
		if problems := Mistyped(raw, reflect.TypeFor[Config]()); problems.Failed() {
			return Config{}, problems
		}
	}
	var problems problem.Report
	lost := lostMember(raw)
	for _, e := range rep.Entries {
		path := document.PathOf(e.Context.Path...)
		switch unknown := strings.HasPrefix(e.Message, unusedKey); {
		case unknown && !lost(path):
			problems.Warn(path, "unknown member: the Ignition specification of the config's version has no such; it is left out, and asks for nothing")
		case unknown:
			problems.Fail(path, "unknown member: the Ignition specification of the config's version has no such")
		case e.Kind == report.Error:
			problems.Fail(path, "%s", e.Message)
		case e.Kind == report.Warn:
			problems.Warn(path, "%s", e.Message)
		}
	}
	if err != nil && len(problems) == 0 {
		path := ""
		if errors.Is(err, ignerrors.ErrUnknownVersion) || errors.Is(err, ignerrors.ErrInvalidVersion) {
			path = ".ignition.version" // the report has no entry for this error
			err = fmt.Errorf("%w: supported are 3.0.0 to 3.6.0", err)
		}
		problems.Fail(path, "%v", err)
	}
	if problems.Failed() {
		return Config{}, problems
	}
	return config, problems
}

// unusedKey begins Ignition's warning about a member that a version does not have.
const unusedKey = "unused key"

// lostMember returns a function that reports whether a config loses something without a member that its version does
// not have. Nothing is lost by an empty value, as "networkd": {} of version 2, or by "filesystem": "root", because all
// paths of version 3 are in the root file system. Tools that write version 3 have left both in configs, and the
// machine-config operator drops them.
func lostMember(raw []byte) func(path string) bool {
	read := sync.OnceValues(func() (document.Node, bool) {
		var discarded problem.Report // the parser reports what is wrong
		return document.ParseJSON(raw, &discarded)
	})
	return func(path string) bool {
		config, ok := read()
		value, _ := config.Find(document.Steps(path)...)
		onRoot := value.Is("root") && nodeMember.MatchString(path)
		return !ok || !value.IsEmpty() && !onRoot
	}
}

// nodeMember matches the path of the member "filesystem" of a file, directory or link.
var nodeMember = regexp.MustCompile(`^\.storage\.(files|directories|links)\[\d+\]\.filesystem$`)

// relabel returns a config with another version number.
func relabel(raw []byte, version string) []byte {
	var config, ignition map[string]json.RawMessage
	if json.Unmarshal(raw, &config) != nil || json.Unmarshal(config["ignition"], &ignition) != nil {
		return raw // the parser reports the error
	}
	ignition["version"] = fmt.Appendf(nil, "%q", version)
	config["ignition"] = mustMarshal(ignition)
	return mustMarshal(config)
}

// mustMarshal encodes a value that was decoded from JSON, which cannot fail.
func mustMarshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
