package ignition

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
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
	v36 "github.com/coreos/ignition/v2/config/v3_6"
	v36types "github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/coreos/ignition/v2/config/validate"
	"github.com/coreos/vcontext/path"
	"github.com/coreos/vcontext/report"
	walk "github.com/coreos/vcontext/validate"
)

// parser parses a config of one version, like the function Parse of Ignition's package for it.
type parser[T any] func(raw []byte) (T, report.Report, error)

// parseOf returns the parser of a version, which translates to Version. Ignition's own choice, for a version that is
// unknown here, reads the whole text once more for each version between that of the config and the newest.
func parseOf(version string) parser[Config] {
	switch version {
	case "3.0.0":
		return then(then(then(then(then(once(v30.Parse), to31.Translate), to32.Translate), to33.Translate), to34.Translate), to35.Translate)
	case "3.1.0":
		return then(then(then(then(once(v31.Parse), to32.Translate), to33.Translate), to34.Translate), to35.Translate)
	case "3.2.0":
		return then(then(then(once(v32.Parse), to33.Translate), to34.Translate), to35.Translate)
	case "3.3.0":
		return then(then(once(v33.Parse), to34.Translate), to35.Translate)
	case "3.4.0":
		return then(once(v34.Parse), to35.Translate)
	case Version:
		return once(v3.Parse)
	case later:
		return then(once(v36.Parse), lowered)
	}
	return v3.ParseCompatibleVersion
}

// lowered converts a config of version 3.6 to Version. Both have the same members; 3.6 only allows more values.
func lowered(from v36types.Config) (config Config) {
	from.Ignition.Version = Version
	if err := json.Unmarshal(mustMarshal(from), &config); err != nil {
		panic(err) // the types have the same members: see TestLowered
	}
	return config
}

// then returns a parser that translates configs to the next version.
func then[From, To any](parse parser[From], translate func(From) To) parser[To] {
	return func(raw []byte) (config To, r report.Report, err error) {
		old, r, err := parse(raw)
		if err != nil {
			return config, r, err
		}
		return translate(old), r, nil
	}
}

// once returns a parser that finds what parse finds. It visits each value once for Ignition's checks together, not
// once for each, and leaves out what only serves to say where unknown members are. A config that has some, or is none
// at all, is left to parse.
func once[T any](parse parser[T]) parser[T] {
	return func(raw []byte) (none T, r report.Report, err error) {
		var config T
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if d.Decode(&config) != nil || !spelled(raw, namesOf(reflect.TypeOf(config), map[string]bool{})) {
			return parse(raw)
		}
		if r = validated(config); r.IsFatal() {
			return none, r, ignerrors.ErrInvalid
		}
		return config, r, nil
	}
}

// validated returns what Ignition's validation finds in a config without unknown members, in its order: see
// ValidateWithContext of its package validate.
func validated(config any) report.Report {
	var found, duplicates report.Report
	walk.ValidateCustom(config, "json", func(v reflect.Value, at path.ContextPath) report.Report {
		found.Merge(walk.DefaultValidator(v, at))
		duplicates.Merge(validate.ValidateDups(v, at))
		return report.Report{}
	})
	found.Merge(duplicates)
	return found
}

// namesOf adds the names of the members of a type, and of those in it, to names.
func namesOf(t reflect.Type, names map[string]bool) map[string]bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		namesOf(t.Elem(), names)
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			names[name] = true
			namesOf(t.Field(i).Type, names)
		}
	}
	return names
}

// spelled reports whether all names of members in a valid JSON text are among names. encoding/json takes Path for
// path, Ignition does not. That a name is one of another type does not matter, because no two differ only in case.
func spelled(raw []byte, names map[string]bool) bool {
	for {
		start := bytes.IndexByte(raw, '"')
		if start < 0 {
			return true
		}
		raw = raw[start+1:]
		end := endOf(raw)
		text, rest := raw[:end], bytes.TrimLeft(raw[end+1:], " \t\r\n")
		if len(rest) > 0 && rest[0] == ':' && !names[string(text)] {
			return false
		}
		raw = rest
	}
}

// endOf returns the offset of the quote that ends a string. One before which the number of \ is odd is in it.
func endOf(text []byte) (end int) {
	for {
		end += bytes.IndexByte(text[end:], '"')
		before := bytes.TrimRight(text[:end], `\`)
		if (end-len(before))%2 == 0 {
			return end
		}
		end++
	}
}
