package authored

import (
	"github.com/coreos/ign-converter/translate/v32tov22"
	v32 "github.com/coreos/ignition/v2/config/v3_2"

	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
)

// IgnitionVersions returns the config versions that WriteIgnition can write, newest first.
func IgnitionVersions() []string { return append(ignition.Versions(), newest2) }

// WriteIgnition writes a config in one of IgnitionVersions. It refuses everything that this version does not
// support, with the paths.
func WriteIgnition(config ignition.Config, version string) ([]byte, problem.Report) {
	if version != newest2 {
		return ignition.Down(config, version)
	}
	raw, problems := ignition.Down(config, "3.2.0")
	if problems != nil {
		return nil, problems
	}
	parsed, _, err := v32.Parse(raw)
	if err != nil {
		return nil, problem.Report{problem.Errorf("", "%v", err)}
	}
	old, err := v32tov22.Translate(parsed)
	if err != nil {
		return nil, problem.Report{problem.Errorf("", "it cannot be translated to version 2.2: %v", err)}
	}
	raw = ignition.Pruned(old)
	if _, problems := read2(raw, newest2); problems.Failed() {
		return nil, problems
	}
	return raw, nil
}
