// Package ignition treats the Ignition configs that a MachineConfig may hold, of
// every version from 3.0 to 3.6, as configs of one version: Config, which is 3.5.
// It parses and translates them up, merges them, reads what they carry inline,
// and translates them down to the version that a machine understands. Package legacy
// does the same with version 2 too.
//
// What a config means and which ones are valid is decided by Ignition's own
// packages; this one adds what they leave open. It does no I/O.
package ignition

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	v3 "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/vcontext/report"

	"machine-pivot/internal/machineconfig/jsonpath"
	"machine-pivot/internal/problem"
)

// Version is the version of Config.
const Version = "3.5.0"

// Config is an Ignition config of any version, as one of Version.
type Config = types.Config

// Parse reads a config of the versions 3.0 to 3.5, or of 3.6 if it has no member that
// 3.5 does not know. It reports everything that is wrong; members that its version
// does not know are errors, for they would be lost. The paths of the report begin at the
// config, as .storage.files[0].mode; that of the whole is "".
func Parse(raw []byte) (Config, problem.Report) {
	version, wrong := VersionOf(raw)
	if wrong = append(wrong, CheckSize(raw)...); wrong.Failed() {
		return Config{}, wrong
	}
	if Later(version) {
		raw = relabel(raw, Version)
	}
	return parse3(raw)
}

// Later reports whether a version that Parse reads is later than Version, the last
// that the machine-config operator accepts.
func Later(version string) bool { return version == "3.6.0" }

// VersionOf is what a config says of its version; the report says why it says none.
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
		return "", problem.Report{missing.WithHint("say which version of the specification the config is of, as 3.4.0")}
	}
	return *config.Ignition.Version, nil
}

// The bounds of a config. Ignition's validation holds each link against all else.
const (
	maxEntries = 50_000 // files, directories, links and units
	maxLinks   = 5_000
)

// CheckSize reports that a config has more than anybody's machine needs, if it has.
func CheckSize(raw []byte) problem.Report {
	var config struct {
		Storage struct{ Files, Directories, Links []json.RawMessage }
		Systemd struct{ Units []json.RawMessage }
	}
	if json.Unmarshal(raw, &config) != nil {
		return nil // to be told what is wrong by the parser
	}
	if n := len(config.Storage.Links); n > maxLinks {
		return problem.Report{problem.Errorf(".storage.links", "it has %d elements, more than %d", n, maxLinks)}
	}
	if n := len(config.Storage.Files) + len(config.Storage.Directories) + len(config.Storage.Links) + len(config.Systemd.Units); n > maxEntries {
		return problem.Report{problem.Errorf("", "it has %d files, directories, links and units, more than %d", n, maxEntries)}
	}
	return nil
}

// kindOf is the JSON type that was wanted.
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

// parse3 reads a config of version 3.
func parse3(raw []byte) (Config, problem.Report) {
	config, rep, err := v3.ParseCompatibleVersion(raw)
	var problems problem.Report
	for _, e := range rep.Entries {
		path := jsonpath.Of(e.Context.Path...)
		switch unknown := strings.HasPrefix(e.Message, "unused key"); {
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
			path = ".ignition.version" // judged without an entry in the report
			err = fmt.Errorf("%w: supported are 3.0.0 to 3.6.0", err)
		}
		problems.Fail(path, "%v", err)
	}
	if problems.Failed() {
		return Config{}, problems
	}
	return config, problems
}

// relabel is a config that claims another version.
func relabel(raw []byte, version string) []byte {
	var config, ignition map[string]json.RawMessage
	if json.Unmarshal(raw, &config) != nil || json.Unmarshal(config["ignition"], &ignition) != nil {
		return raw // to be told what is wrong by the parser
	}
	ignition["version"] = fmt.Appendf(nil, "%q", version)
	config["ignition"] = mustMarshal(ignition)
	return mustMarshal(config)
}

// mustMarshal writes what was read from JSON before and so cannot fail.
func mustMarshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
