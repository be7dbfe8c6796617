package ignition

import (
	"slices"

	"machine-pivot/internal/problem"
)

// Versions are those that a config can be written in, the newest first.
func Versions() []string {
	return []string{Version, "3.4.0", "3.3.0", "3.2.0", "3.1.0", "3.0.0"}
}

// Down writes a config in one of Versions. It refuses, with all the places, what
// that version has no words for; nothing is lost in silence. From 3.0 on each
// version only adds to the one before, so a config that the parser of the older
// version accepts whole is one of that version.
func Down(config Config, version string) ([]byte, problem.Report) {
	if !slices.Contains(Versions(), version) {
		return nil, problem.Report{problem.Errorf(".ignition.version", "cannot write version %.100q", version)}
	}
	raw := relabel(Marshal(config), version)
	if _, problems := parse3(raw); problems.Failed() {
		return nil, problems
	}
	return raw, nil
}
