package enable

import (
	"errors"
	"path"
	"slices"
	"strings"
)

const (
	presetDir      = "/etc/systemd/system-preset"
	imagePresetDir = "/usr/lib/systemd/system-preset"
	// ignitionPreset is how Ignition enables units at a machine's installation. Those that
	// the MachineConfig still enables have a wish; the others are the image's to preset.
	ignitionPreset = "20-ignition.preset"
)

// preset enables or disables a unit as the system's presets say. A unit that cannot be
// enabled, as a template of which no instance is named, is left alone, as by systemd.
func (r *resolver) preset(name string) error {
	unit, err := r.find(name)
	if errors.Is(err, errNoUnit) || errors.Is(err, errMasked) {
		return nil
	}
	if err != nil {
		return err
	}
	action, instances, err := r.rule(unit.name)
	if err != nil {
		return err
	}
	for _, name := range instances {
		switch action {
		case "enable":
			err = r.enable(name)
		case "disable":
			err = r.disable(name)
		}
		if err != nil && !errors.Is(err, errNoInstance) {
			return err
		}
	}
	return nil
}

// rule is what the first rule for a unit says, and for which units that is. A unit for
// which there is none is enabled.
func (r *resolver) rule(name string) (action string, units []string, err error) {
	texts := map[string]string{ignitionPreset: ""}
	if err := r.read(texts, presetDir, imagePresetDir, ".preset"); err != nil {
		return "", nil, err
	}
	for _, file := range sortedKeys(texts) {
		for line := range strings.Lines(texts[file]) {
			words := strings.Fields(line)
			if len(words) < 2 || strings.ContainsAny(words[0][:1], "#;") {
				continue
			}
			if units := ruledBy(words[1], words[2:], name); units != nil {
				return words[0], units, nil
			}
		}
	}
	return "enable", []string{name}, nil
}

// ruledBy are the units that a rule for a pattern means where one name is asked for; none
// if it does not mean that name. Instances in a rule go before its pattern.
func ruledBy(pattern string, instances []string, name string) []string {
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
	// As fnmatch(3) with FNM_NOESCAPE: a backslash is itself, and ! negates.
	pattern = strings.NewReplacer(`\`, `\\`, "[!", "[^").Replace(pattern)
	if matched, err := path.Match(pattern, name); err != nil || !matched {
		return nil
	}
	return []string{name}
}
