package update

import (
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/machineconfig/ignition"
)

// units compares systemd units. The operator compares them by name; their order does not matter.
func (d *differ) units(old, new ignition.Config) {
	name := func(u types.Unit) string { return u.Name }
	was, is := byName(old.Systemd.Units, name), byName(new.Systemd.Units, name)
	for _, name := range union(was, is) {
		c := Change{Kind: "unit", Name: name, Action: actionOf(was[name], is[name])}
		if c.Action == actionChange {
			if same(was[name], is[name]) {
				continue
			}
			c.Detail = unitDifference(was[name], is[name])
		}
		c.Actions, c.Because = chosen(d.policy.ForUnit(name))
		d.add(c)
	}
}

// unitDifference describes the difference between two units.
func unitDifference(old, new *types.Unit) string {
	var what []string
	if value(new.Contents) != value(old.Contents) {
		what = append(what, "content")
	}
	was, is := dropinsOf(old), dropinsOf(new)
	for _, name := range union(was, is) {
		if was[name] != is[name] {
			what = append(what, "drop-in "+name)
		}
	}
	if was, is := stateOf(old), stateOf(new); was != is {
		what = append(what, fmt.Sprintf("%q to %q", was, is))
	}
	if len(what) == 0 {
		return formOnly(old, new)
	}
	return strings.Join(what, ", ")
}

// dropinsOf returns the contents of drop-ins. The machine-config daemon removes an empty one.
func dropinsOf(u *types.Unit) map[string]string {
	dropins := map[string]string{}
	for _, d := range u.Dropins {
		if value(d.Contents) != "" {
			dropins[d.Name] = *d.Contents
		}
	}
	return dropins
}

// stateOf returns "enabled", "disabled" or "" (by the presets), then "masked" if it is.
func stateOf(u *types.Unit) (state string) {
	if u.Enabled != nil {
		state = map[bool]string{true: "enabled", false: "disabled"}[*u.Enabled]
	}
	if u.Mask != nil && *u.Mask {
		state += " masked"
	}
	return strings.TrimSpace(state)
}
