package ignition

import (
	v30 "github.com/coreos/ignition/v2/config/v3_0"
	v31 "github.com/coreos/ignition/v2/config/v3_1"
	to31 "github.com/coreos/ignition/v2/config/v3_1/translate"
	v32 "github.com/coreos/ignition/v2/config/v3_2"
	to32 "github.com/coreos/ignition/v2/config/v3_2/translate"
	v33 "github.com/coreos/ignition/v2/config/v3_3"
	to33 "github.com/coreos/ignition/v2/config/v3_3/translate"
	v34 "github.com/coreos/ignition/v2/config/v3_4"
	to34 "github.com/coreos/ignition/v2/config/v3_4/translate"
	v3 "github.com/coreos/ignition/v2/config/v3_5"
	to35 "github.com/coreos/ignition/v2/config/v3_5/translate"
	"github.com/coreos/vcontext/report"
)

// parser is one of Ignition's parsers, and the translations of what it returns to Version.
type parser func(raw []byte) (Config, report.Report, error)

// parseOf returns the parser of a version. Ignition's own choice of it, which is that for a version that is
// unknown here, reads the whole text once more for each version between that of the config and the newest.
func parseOf(version string) parser {
	switch version {
	case "3.0.0":
		return then(then(then(then(then(v30.Parse, to31.Translate), to32.Translate), to33.Translate), to34.Translate), to35.Translate)
	case "3.1.0":
		return then(then(then(then(v31.Parse, to32.Translate), to33.Translate), to34.Translate), to35.Translate)
	case "3.2.0":
		return then(then(then(v32.Parse, to33.Translate), to34.Translate), to35.Translate)
	case "3.3.0":
		return then(then(v33.Parse, to34.Translate), to35.Translate)
	case "3.4.0":
		return then(v34.Parse, to35.Translate)
	case Version:
		return v3.Parse
	}
	return v3.ParseCompatibleVersion
}

// then returns a parser whose configs are translated to the next version.
func then[From, To any](parse func([]byte) (From, report.Report, error), translate func(From) To) func([]byte) (To, report.Report, error) {
	return func(raw []byte) (config To, r report.Report, err error) {
		old, r, err := parse(raw)
		if err != nil {
			return config, r, err
		}
		return translate(old), r, nil
	}
}
