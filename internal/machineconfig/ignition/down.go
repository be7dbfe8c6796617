package ignition

import (
	"slices"

	"machine-pivot/internal/problem"
)

// Versions returns the versions that Down can write, newest first.
func Versions() []string {
	return []string{later, Version, "3.4.0", "3.3.0", "3.2.0", "3.1.0", "3.0.0"}
}

// Down writes a config in one of Versions. It returns an error for each member that the version
// does not have; nothing is dropped silently. Since 3.0 each version only adds to the previous
// one, so a config that the parser of an older version accepts completely is valid in that
// version.
func Down(config Config, version string) ([]byte, problem.Report) {
	if !slices.Contains(Versions(), version) {
		return nil, problem.Report{problem.Errorf(".ignition.version", "cannot write version %.100q", version)}
	}
	raw := relabel(Marshal(config), version)
	if _, problems := parse3(raw, version); problems.Failed() {
		return nil, problems
	}
	return raw, nil
}
