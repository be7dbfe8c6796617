// Package kargs represents the kernel command line as values. It splits a line as the kernel does, compares arguments
// by meaning, computes changes, and knows which arguments a configuration must not set.
//
// Splitting follows the kernel's next_arg (lib/cmdline.c): white space separates arguments, a double quote toggles
// quoting and remains part of the argument. Quotes cannot be escaped, and a single quote is an ordinary character.
// There is one exception: the byte 0xa0 is white space for the kernel, but not here. Check rejects it, and a boot entry
// that has it is preserved.
package kargs

import (
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Line is a kernel command line: all its arguments in order, including quotes.
type Line []string

// initSeparator ends the kernel's arguments; those after it are passed to init.
const initSeparator = "--"

// IgnitionVariable is what GRUB replaces in a boot entry on hosts of the Fedora CoreOS family, on the first boot by
// Ignition's arguments.
const IgnitionVariable = "$ignition_firstboot"

// Split splits a command line into its arguments. It never fails: as in the kernel, an
// unclosed quote extends to the end of the line.
func Split(line string) Line {
	var args Line
	start, quoted := -1, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case isSpace(c) && !quoted:
			if start >= 0 {
				args = append(args, line[start:i])
				start = -1
			}
			continue
		case c == '"':
			quoted = !quoted
		}
		if start < 0 {
			start = i
		}
	}
	if start >= 0 {
		args = append(args, line[start:])
	}
	return args
}

// String joins the arguments with single spaces.
func (l Line) String() string { return strings.Join(l, " ") }

// Equal reports whether two lines have exactly the same arguments in the same order.
func (l Line) Equal(other Line) bool {
	if len(l) != len(other) {
		return false
	}
	for i := range l {
		if l[i] != other[i] {
			return false
		}
	}
	return true
}

// EqualButOstree reports whether the lines of two boot entries are equal but for ostree=.
func (l Line) EqualButOstree(other Line) bool { return l.WithoutOstree().Equal(other.WithoutOstree()) }

// WithoutOstree returns the line without ostree=. libostree names the deployment by it, so that it differs between any
// two deployments, and writes it anew with each set of boot entries.
func (l Line) WithoutOstree() Line {
	var rest Line
	for _, arg := range l {
		if len(Line{arg}.Values("ostree")) == 0 {
			rest = append(rest, arg)
		}
	}
	return rest
}

// Values returns the values of all arguments with a key, in order and without quotes. A flag
// without "=" has the value "".
func (l Line) Values(key string) []string {
	var values []string
	for _, arg := range l.kernelPart() {
		if k, v, _ := parts(arg); k == normalKey(key) {
			values = append(values, v)
		}
	}
	return values
}

// Prefixed yields, in order, the arguments with a key that begins with prefix: the rest of the key, with "_" instead of
// "-", and the value without quotes.
func (l Line) Prefixed(prefix string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for _, arg := range l.kernelPart() {
			key, value, _ := parts(arg)
			if rest, ok := strings.CutPrefix(key, normalKey(prefix)); ok && !yield(rest, value) {
				return
			}
		}
	}
}

// DisablesThreads reports whether the arguments disable simultaneous multithreading: directly,
// or as part of the mitigation of a CPU vulnerability.
func (l Line) DisablesThreads() bool {
	arg, _ := l.ThreadsOff()
	return arg != ""
}

// ThreadsOff returns the argument that disables simultaneous multithreading, or "". certain is
// false if the argument affects only CPUs with a certain vulnerability. The last value of a key
// counts.
func (l Line) ThreadsOff() (arg string, certain bool) {
	if len(l.Values("nosmt")) > 0 {
		return "nosmt", true
	}
	if value, ok := l.last("smt-enabled"); ok && (value == "off" || value == "0") { // on POWER
		return "smt-enabled=" + value, true
	}
	for _, key := range []string{"mitigations", "l1tf", "mds", "tsx_async_abort", "mmio_stale_data", "retbleed"} {
		value, _ := l.last(key)
		if slices.Contains(strings.Split(value, ","), "nosmt") || key == "l1tf" && value == "full,force" {
			return key + "=" + value, false
		}
	}
	return "", false
}

// FIPS reports whether the arguments start the kernel in FIPS mode. The last number counts, and each but
// 0 switches it on (crypto/fips.c).
func (l Line) FIPS() bool {
	on := false
	for _, value := range l.Values("fips") {
		if number, err := strconv.ParseInt(value, 0, 32); err == nil {
			on = number != 0
		}
	}
	return on
}

// last returns the last value of a key.
func (l Line) last(key string) (value string, ok bool) {
	values := l.Values(key)
	if len(values) == 0 {
		return "", false
	}
	return values[len(values)-1], true
}

// kernelPart returns the line up to the separator "--".
func (l Line) kernelPart() Line {
	for i, arg := range l {
		if arg == initSeparator {
			return l[:i]
		}
	}
	return l
}

// parts returns the key of an argument in normal form, its value without the quotes that the
// kernel strips, and whether it has a "=".
func parts(arg string) (key, value string, hasValue bool) {
	if len(arg) > 0 && arg[0] == '"' {
		arg = strings.TrimSuffix(arg[1:], `"`)
	}
	key, value, hasValue = strings.Cut(arg, "=")
	if len(value) > 0 && value[0] == '"' {
		value = strings.TrimSuffix(value[1:], `"`)
	}
	return normalKey(key), value, hasValue
}

// normalKey maps "-" to "_": in keys the kernel and systemd treat them as equal.
func normalKey(key string) string { return strings.ReplaceAll(key, "-", "_") }

// meaning returns an argument in normal form: arguments with the same meaning have the same form.
func meaning(arg string) string {
	key, value, hasValue := parts(arg)
	if !hasValue {
		return key
	}
	return key + "=" + value
}

func isSpace(c byte) bool { return c == ' ' || ('\t' <= c && c <= '\r') }
