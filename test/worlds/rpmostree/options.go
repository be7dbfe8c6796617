package rpmostree

import (
	"slices"
	"strings"
)

// option is one option of a verb.
type option struct {
	value bool    // it takes a value
	since release // the first release with it
}

// options are the parsed arguments of a call.
type options struct {
	given   [][2]string // names and values, in order
	operand []string
}

func (o options) has(name string) bool { return len(o.values(name)) > 0 }

func (o options) values(name string) []string {
	var values []string
	for _, g := range o.given {
		if g[0] == name {
			values = append(values, g[1])
		}
	}
	return values
}

func (o options) value(name string) string { return strings.Join(o.values(name), "") }

// parseOptions reads "--name", "--name=value", "--name value" and single letters.
func parseOptions(known map[string]option, r release, args []string) (options, error) {
	var o options
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if !strings.HasPrefix(arg, "-") {
			o.operand = append(o.operand, arg)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		opt, ok := known[name]
		if !ok || !r.since(opt.since) {
			return o, failf("Unknown option %s", strings.SplitN(arg, "=", 2)[0])
		}
		if opt.value && !hasValue {
			if len(args) == 0 {
				return o, failf("Missing argument for --%s", name)
			}
			value, args = args[0], args[1:]
		}
		o.given = append(o.given, [2]string{name, value})
	}
	return o, nil
}

// with adds the named common options, which several verbs have, to more.
func with(more map[string]option, names ...string) map[string]option {
	common := map[string]option{
		"lock-finalization": {since: release{2020, 4}},
		"bypass-driver":     {since: release{2021, 3}},
		"unchanged-exit-77": {since: release{2021, 5}},
		"reboot":            {},
		"r":                 {},
	}
	for name, o := range common {
		if slices.Contains(names, name) {
			more[name] = o
		}
	}
	return more
}
