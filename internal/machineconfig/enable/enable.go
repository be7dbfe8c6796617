// Package enable computes the symbolic links that enable, disable or mask a systemd unit. It does
// not use systemctl, so it also works for a system that does not run yet.
//
// Source: systemd.unit(5), "[Install] section options" and "Specifiers", and
// systemd.preset(5). The tests compare it with systemctl --root. The package does no I/O.
package enable

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
)

// Dir has the administrator's units, and the links that enable units.
const Dir = "/etc/systemd/system"

// Install is what the section [Install] of a unit file requests.
type Install struct {
	Name  string            // the unit that is enabled: for a template, its default instance
	Links map[string]string // link targets by the links' paths
	Also  []string          // units that are enabled together with this one
}

// dependencies are the options that name depending units, each with the suffix of a depending
// unit's directory of links.
var dependencies = map[string]string{"WantedBy": ".wants", "RequiredBy": ".requires", "UpheldBy": ".upholds"}

// Suffixes returns the suffixes of the directories in Dir with links that enable a unit.
func Suffixes() []string { return slices.Sorted(maps.Values(dependencies)) }

// errNoInstance is the error of a template without a default instance.
var errNoInstance = errors.New("it is a template without a DefaultInstance=")

// Of returns the links and units that enable a unit, given its name, and the path and text of its
// file. For a unit without an [Install] section, which systemd calls static, there are none.
func Of(name, file, text string) (Install, error) {
	in := Install{Links: map[string]string{}}
	options := readInstall(text)
	name, err := withInstance(name, options["DefaultInstance"])
	if err != nil && len(options) == 0 {
		return in, nil
	}
	if in.Name = name; err == nil {
		err = in.add(name, file, options)
	}
	if err != nil {
		return in, fmt.Errorf("cannot enable unit %s: %w", name, err)
	}
	return in, nil
}

// add adds what the options of a unit request. The name must have the instance.
func (in *Install) add(name, file string, options map[string][]string) error {
	for option, dir := range dependencies {
		for _, by := range options[option] {
			by, err := expand(by, name)
			if err != nil {
				return err
			}
			if err := hostfiles.CheckName(by + dir); err != nil {
				return fmt.Errorf("cannot use %s=%s: %w", option, by, err)
			}
			in.Links[path.Join(Dir, by+dir, name)] = file
		}
	}
	for _, alias := range options["Alias"] {
		alias, err := expand(alias, name)
		if err == nil {
			alias, err = aliasOf(alias, name)
		}
		if err != nil {
			return err
		}
		in.Links[path.Join(Dir, alias)] = file
	}
	for _, also := range options["Also"] {
		also, err := expand(also, name)
		if err != nil {
			return err
		}
		in.Also = append(in.Also, also)
	}
	return nil
}

// aliasOf returns alias as an alias of the unit name. An alias that is a template gets the unit's
// instance.
func aliasOf(alias, name string) (string, error) {
	switch _, instance, isInstance := cutInstance(name); {
	case path.Ext(alias) != path.Ext(name):
		return "", fmt.Errorf("its alias %s is of another type", alias)
	case strings.Contains(alias, "@.") && !isInstance:
		return "", fmt.Errorf("its alias %s is a template", alias)
	case strings.Contains(alias, "@."):
		return strings.Replace(alias, "@.", "@"+instance+".", 1), nil
	}
	return alias, nil
}

// readInstall reads the options of the section [Install], each a list of words. An empty
// assignment resets the list. Lines that are not assignments are ignored.
func readInstall(text string) map[string][]string {
	options := map[string][]string{}
	for line := range strings.Lines(Section(text)) {
		name, value, assigns := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		words := strings.Fields(value)
		switch {
		case !assigns:
		case len(words) == 0:
			delete(options, name)
		default:
			options[name] = append(options[name], words...)
		}
	}
	return options
}

// Section returns the section [Install] of a unit's file or drop-in, one line for each option; ""
// if there is none. The rest of the file does not matter for enabling the unit.
func Section(text string) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(joined(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "["):
			inside = line == "[Install]"
			if inside {
				b.WriteString("[Install]\n")
			}
		case inside && line != "":
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// joined returns a unit file without comments, and with lines that end with a backslash joined
// with the next one.
func joined(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";") {
			continue
		}
		if whole, goesOn := strings.CutSuffix(strings.TrimRight(line, "\n"), "\\"); goesOn {
			line = whole + " "
		}
		b.WriteString(line)
	}
	return b.String()
}

// withInstance returns the name of the unit to enable: for a template its default instance.
func withInstance(name string, instance []string) (string, error) {
	prefix, suffix, isTemplate := strings.Cut(name, "@.")
	switch {
	case !isTemplate:
		return name, nil
	case len(instance) == 0:
		return name, errNoInstance
	}
	return prefix + "@" + instance[len(instance)-1] + "." + suffix, nil
}

// cutInstance splits the name of an instance into its template and its instance string.
func cutInstance(name string) (template, instance string, isInstance bool) {
	prefix, rest, _ := strings.Cut(strings.TrimSuffix(name, path.Ext(name)), "@")
	return prefix + "@" + path.Ext(name), rest, rest != ""
}

// maxName is the maximum length of a unit's name, in bytes: systemd's UNIT_NAME_MAX without the NUL.
const maxName = 255

// unitName matches valid names of units (systemd.unit(5)).
var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$`)

// IsName reports whether name is a valid name of a unit.
func IsName(name string) bool { return len(name) <= maxName && unitName.MatchString(name) }

// expand replaces specifiers in word, and returns a name of a unit. It supports only specifiers that
// depend on nothing but the unit's name.
func expand(word, name string) (string, error) {
	stem := strings.TrimSuffix(name, path.Ext(name))
	prefix, instance, _ := strings.Cut(stem, "@")
	last := prefix[strings.LastIndex(prefix, "-")+1:]
	values := map[byte]string{'n': name, 'N': stem, 'p': prefix, 'i': instance, 'j': last, '%': "%"}
	var text strings.Builder
	for i := 0; i < len(word); i++ {
		if word[i] != '%' {
			text.WriteByte(word[i])
			continue
		}
		if i++; i == len(word) {
			return "", fmt.Errorf("%q ends in the middle of a specifier", word)
		}
		value, known := values[word[i]]
		if !known {
			return "", fmt.Errorf("not implemented: the specifier %%%c in %q, which depends on more than the unit's name", word[i], word)
		}
		text.WriteString(value)
	}
	if result := text.String(); IsName(result) {
		return result, nil
	}
	return "", fmt.Errorf("%q is not the name of a unit", word)
}
