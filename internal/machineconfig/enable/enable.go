// Package enable knows the symbolic links by which a systemd unit is enabled, disabled or
// masked, without systemd: those of a system that does not run yet, whose systemctl
// cannot be asked.
//
// Source: systemd.unit(5), "[Install] section options" and "Specifiers", and
// systemd.preset(5); the tests hold it against systemctl --root. The package does no I/O.
package enable

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Dir is where an administrator's units are, and the links that enable units.
const Dir = "/etc/systemd/system"

// Install is what the section [Install] of a unit file asks for.
type Install struct {
	Links map[string]string // what each link points at, by its path
	Also  []string          // units that are enabled with this one
}

// dependencies are the options that name units, with the directory of links to what
// each of those pulls in.
var dependencies = map[string]string{"WantedBy": ".wants", "RequiredBy": ".requires", "UpheldBy": ".upholds"}

// errNoInstance is the failure of a template that does not say which of its instances.
var errNoInstance = errors.New("it is a template without a DefaultInstance=")

// Of is what a unit asks for that is enabled, by its name and the text and path of its
// file. A unit without an [Install] section asks for nothing: systemd calls it static.
func Of(name, file, text string) (Install, error) {
	in := Install{Links: map[string]string{}}
	options := readInstall(text)
	name, err := withInstance(name, options["DefaultInstance"])
	if err != nil && len(options) == 0 {
		return in, nil
	}
	if err == nil {
		err = in.add(name, file, options)
	}
	if err != nil {
		return in, fmt.Errorf("cannot enable unit %s: %w", name, err)
	}
	return in, nil
}

// add adds what the options of a unit ask for, whose name has its instance.
func (in *Install) add(name, file string, options map[string][]string) error {
	for option, dir := range dependencies {
		for _, by := range options[option] {
			by, err := expand(by, name)
			if err != nil {
				return err
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

// aliasOf is the alias of a unit: a template stands for the unit's instance.
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
// assignment forgets what was assigned before; what is no assignment is passed over.
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

// Section is the section [Install] of a unit's file or drop-in, one line for each option;
// "" if there is none. Nothing else of such a file says how a unit is enabled.
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

// joined is a unit file without comments, and with one line for each option: a line that
// ends with a backslash goes on in the next one.
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

// withInstance is the name of the unit that is enabled: of a template its default instance.
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

// cutInstance takes the name of an instance apart: its template and what it is an
// instance of.
func cutInstance(name string) (template, instance string, isInstance bool) {
	prefix, rest, _ := strings.Cut(strings.TrimSuffix(name, path.Ext(name)), "@")
	return prefix + "@" + path.Ext(name), rest, rest != ""
}

// unitName is the name of a unit (systemd.unit(5)).
var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$`)

// IsName reports whether a unit can have this name.
func IsName(name string) bool { return unitName.MatchString(name) }

// expand replaces the specifiers that depend on the unit's name alone.
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
