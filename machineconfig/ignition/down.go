package ignition

import (
	"fmt"
	"slices"

	"github.com/coreos/ign-converter/translate/v32tov22"
	v32 "github.com/coreos/ignition/v2/config/v3_2"
)

// Versions are those that a config can be written in, the newest first.
func Versions() []string {
	return []string{Version, "3.4.0", "3.3.0", "3.2.0", "3.1.0", "3.0.0", newest2}
}

// Down writes a config in one of Versions. It refuses, with all the places, what
// that version has no words for; nothing is lost in silence. From 3.0 on each
// version only adds to the one before, so a config that the parser of the older
// version accepts whole is one of that version.
func Down(config Config, version string) ([]byte, []Problem) {
	switch {
	case !slices.Contains(Versions(), version):
		return nil, []Problem{{Path: ".ignition.version", Message: fmt.Sprintf("cannot write version %.100q", version)}}
	case version == newest2:
		return down2(config)
	}
	raw := relabel(Marshal(config), version)
	if _, problems := parse3(raw); Failed(problems) {
		return nil, problems
	}
	return raw, nil
}

// down2 writes version 2.2.
func down2(config Config) ([]byte, []Problem) {
	raw, problems := Down(config, "3.2.0")
	if problems != nil {
		return nil, problems
	}
	parsed, _, err := v32.Parse(raw)
	if err != nil {
		return nil, []Problem{{Message: err.Error()}}
	}
	old, err := v32tov22.Translate(parsed)
	if err != nil {
		return nil, []Problem{{Message: "it cannot be translated to version 2.2: " + err.Error()}}
	}
	raw = pruned(old)
	if _, problems := read2(raw, newest2); Failed(problems) {
		return nil, problems
	}
	return raw, nil
}
