package update

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/machineconfig/ignition"
)

// unit is a systemd unit of a config, in a form that can be compared.
type unit struct {
	content string
	dropins map[string]string
	state   string // "enabled", "disabled" or "" (by the presets), then "masked" if it is
}

func unitsOf(c ignition.Config) map[string]*unit {
	units := map[string]*unit{}
	for _, u := range c.Systemd.Units {
		one := &unit{content: value(u.Contents), dropins: map[string]string{}}
		for _, d := range u.Dropins {
			if value(d.Contents) != "" { // the machine-config daemon removes an empty one
				one.dropins[d.Name] = *d.Contents
			}
		}
		if u.Enabled != nil {
			one.state = map[bool]string{true: "enabled", false: "disabled"}[*u.Enabled]
		}
		if u.Mask != nil && *u.Mask {
			one.state = strings.TrimSpace(one.state + " masked")
		}
		units[u.Name] = one
	}
	return units
}

func (d *differ) units(old, new ignition.Config) {
	was, is := unitsOf(old), unitsOf(new)
	for _, name := range union(was, is) {
		c := Change{Kind: "unit", Name: name, Action: actionChange}
		switch {
		case was[name] == nil:
			c.Action = actionAdd
		case is[name] == nil:
			c.Action = actionRemove
		default:
			if c.Detail = is[name].differsFrom(was[name]); c.Detail == "" {
				continue
			}
		}
		c.Actions, c.Because = d.policy.ofUnit(name)
		d.add(c)
	}
}

func (u *unit) differsFrom(old *unit) string {
	var what []string
	if u.content != old.content {
		what = append(what, "content")
	}
	for _, name := range union(u.dropins, old.dropins) {
		if u.dropins[name] != old.dropins[name] {
			what = append(what, "drop-in "+name)
		}
	}
	if u.state != old.state {
		what = append(what, fmt.Sprintf("%q to %q", old.state, u.state))
	}
	return strings.Join(what, ", ")
}

// accounts compares users and groups.
func (d *differ) accounts(old, new ignition.Config) {
	was, is := usersOf(old), usersOf(new)
	for _, name := range union(was, is) {
		if name != coreUser && canonical(was[name]) != canonical(is[name]) {
			d.add(Change{Kind: "user", Name: name, Action: actionChange, Refused: "the machine-config daemon knows the user core only"})
		}
	}
	d.core(was[coreUser], is[coreUser])
	if canonical(old.Passwd.Groups) != canonical(new.Passwd.Groups) {
		d.add(Change{Kind: "groups", Action: actionChange, Refused: "groups are made at the installation only"})
	}
	if canonical(old.KernelArguments) != canonical(new.KernelArguments) {
		d.add(Change{Kind: "Ignition's kernel arguments", Action: actionChange, Refused: "Ignition's own kernel arguments count at the installation only; use spec.kernelArguments"})
	}
}

// coreUser is the only user that can change on a running machine.
const coreUser = "core"

func usersOf(c ignition.Config) map[string]*types.PasswdUser {
	users := map[string]*types.PasswdUser{}
	for i, u := range c.Passwd.Users {
		users[u.Name] = &c.Passwd.Users[i]
	}
	return users
}

func (d *differ) core(old, new *types.PasswdUser) {
	if old == nil {
		old = &types.PasswdUser{}
	}
	if new == nil {
		new = &types.PasswdUser{}
	}
	actions, because := d.policy.ofKeys()
	sorted := func(u *types.PasswdUser) []string {
		var keys []string
		for _, k := range u.SSHAuthorizedKeys {
			keys = append(keys, string(k))
		}
		slices.Sort(keys)
		return slices.Compact(keys)
	}
	if was, is := sorted(old), sorted(new); !slices.Equal(was, is) {
		d.add(Change{Kind: "SSH keys", Name: coreUser, Action: actionChange, Detail: fmt.Sprintf("%d to %d", len(was), len(is)), Actions: actions, Because: because})
	}
	if value(old.PasswordHash) != value(new.PasswordHash) {
		d.add(Change{Kind: "password", Name: coreUser, Action: actionChange, Actions: actions, Because: because})
	}
	rest := func(u types.PasswdUser) string {
		u.Name, u.SSHAuthorizedKeys, u.PasswordHash = "", nil, nil
		return canonical(u)
	}
	if rest(*old) != rest(*new) {
		d.add(Change{Kind: "user", Name: coreUser, Action: actionChange, Refused: "of the user core only SSH keys and the password change on a machine that runs"})
	}
}

// canonical returns a value's JSON, which is equal for equal values.
func canonical(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%+v", v)
	}
	return string(text)
}
