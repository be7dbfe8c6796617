package enable

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
)

const (
	presetDir      = "/etc/systemd/system-preset"
	imagePresetDir = "/usr/lib/systemd/system-preset"
	// ignitionPreset is the file with which Ignition enables units when a machine is installed. It
	// is ignored: units that the MachineConfig still enables have a wish, and for the others the
	// image's presets count.
	ignitionPreset = "20-ignition.preset"
)

// presetDisabled disables a unit if the system's presets say so. Otherwise it remembers what they
// enable: as systemd does for several units, first all links are removed, then others are made. Like
// systemd it ignores a unit that cannot be enabled, such as a template without an instance.
func (r *resolver) presetDisabled(name string) error {
	unit, err := r.find(name)
	if errors.Is(err, errNoUnit) || errors.Is(err, errMasked) {
		return nil
	}
	if err != nil {
		return err
	}
	action, instances, err := r.rule(unit.name)
	switch {
	case err != nil:
		return err
	case action == "enable":
		r.presets[name] = instances
	case action == "disable":
		for _, name := range instances {
			if err := r.disable(name); err != nil && !errors.Is(err, errNoInstance) {
				return err
			}
		}
	}
	return nil
}

// presetEnabled enables the units that presets enable by a wish.
func (r *resolver) presetEnabled(name string) error {
	for _, name := range r.presets[name] {
		if err := r.enable(name); err != nil && !errors.Is(err, errNoInstance) {
			return err
		}
	}
	return nil
}

// rule returns the action of the first rule for a unit, and the units to which it applies. The
// default is to enable the unit.
func (r *resolver) rule(name string) (action string, units []string, err error) {
	texts := map[string]string{ignitionPreset: ""}
	if err := r.read(texts, presetDir, imagePresetDir, ".preset"); err != nil {
		return "", nil, err
	}
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		for line := range strings.Lines(texts[file]) {
			words := strings.Fields(line)
			if len(words) < 2 || strings.ContainsAny(words[0][:1], "#;") {
				continue
			}
			if units := matchRule(words[1], words[2:], name); units != nil {
				return words[0], units, nil
			}
		}
	}
	return "enable", []string{name}, nil
}

// matchRule returns the units to which a rule with a pattern and instances applies when the preset
// of name is requested; nil if the rule does not match. A rule with instances for a template
// matches only these.
func matchRule(pattern string, instances []string, name string) []string {
	template, instance, isInstance := cutInstance(name)
	isTemplate := strings.Contains(name, "@.")
	if len(instances) > 0 && (isTemplate || isInstance) && pattern == template {
		if isInstance && slices.Contains(instances, instance) {
			return []string{name}
		}
		if isTemplate {
			var all []string
			for _, i := range instances {
				all = append(all, strings.Replace(template, "@.", "@"+i+".", 1))
			}
			return all
		}
	}
	// Like fnmatch(3) with FNM_NOESCAPE: a backslash is literal, and ! negates.
	pattern = strings.NewReplacer(`\`, `\\`, "[!", "[^").Replace(pattern)
	if matched, err := path.Match(pattern, name); err != nil || !matched {
		return nil
	}
	return []string{name}
}
