package machineconfig

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/settings"
	"machine-pivot/kargs"
)

// ParserOf returns the parser of a file that pivot itself reads (projection.Settings); nil for another path. Each file of
// pivot in a MachineConfig is parsed by it before anybody gets the MachineConfig. Otherwise a machine could have a file that
// its reader refuses, and the commands that could replace the file fail at reading it.
func ParserOf(name string) func(content []byte) error {
	var parse func(text string) error
	switch {
	case settings.IsFile(name):
		parse = func(text string) error { return settings.Check(name, text) }
	case name == disruption.RulesPath:
		parse = func(text string) error {
			if _, report := disruption.Read(name, []byte(text)); report.Failed() {
				return errors.New(report.Errors().String())
			}
			return nil
		}
	case name == kargs.PolicyPath:
		parse = func(text string) error { _, err := kargs.Policy{}.Extend(text); return err }
	case name == kargs.LegacyPath:
		parse = func(text string) error { _, err := kargs.ParseLegacy(text); return err }
	case name == imageref.PullspecPath:
		parse = checkPullspec
	default:
		return nil
	}
	return func(content []byte) error {
		err := parse(string(content))
		if len(content) > hostfiles.MaxState {
			err = fmt.Errorf("it has more than %d bytes", hostfiles.MaxState)
		}
		if err != nil {
			return fmt.Errorf("pivot could not read its file %s: %w", path.Base(name), err)
		}
		return nil
	}
}

// checkPullspec checks the file with an image. An empty one asks for none.
func checkPullspec(text string) error {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	_, err := imageref.Parse(text)
	return err
}
