package update

import (
	"fmt"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/machineconfig/ignition"
)

// coreUser is the only user that can change on a running machine.
const coreUser = "core"

// accounts compares users. Any difference needs what the policy for SSH keys says.
func (d *differ) accounts(old, new ignition.Config) {
	if sameList(old.Passwd.Users, new.Passwd.Users) {
		return
	}
	name := func(u types.PasswdUser) string { return u.Name }
	was, is := byName(old.Passwd.Users, name), byName(new.Passwd.Users, name)
	refused := d.refusedUsers(new.Passwd.Users, was)
	actions, because := chosen(d.policy.ForKeys(), true)
	before := len(d.update.Changes)
	for _, name := range union(was, is) {
		if is[name] != nil {
			continue
		}
		if name != coreUser {
			d.add(Change{Kind: "user", Name: name, Action: actionRemove, Actions: actions, Because: because})
		}
		d.note("the machine-config daemon does not remove the user %s: it empties its password", name)
	}
	d.core(value(was[coreUser]), value(is[coreUser]), Change{Name: coreUser, Action: actionChange, Actions: actions, Because: because})
	if len(d.update.Changes) == before && !refused {
		d.add(Change{Kind: "users", Action: actionChange, Detail: "in form or order only", Actions: actions, Because: because})
	}
}

// refusedUsers adds a change for each new user that the operator refuses if users differ: any but core, and core
// without key and password, or with another member. It reports whether there is one.
func (d *differ) refusedUsers(users []types.PasswdUser, was map[string]*types.PasswdUser) (found bool) {
	for _, u := range users {
		rest := u
		rest.Name, rest.SSHAuthorizedKeys, rest.PasswordHash = "", nil, nil
		c := Change{Kind: "user", Name: u.Name, Action: actionOf(was[u.Name], &u)}
		switch {
		case u.Name != coreUser:
			c.Refused = "if users differ, the machine-config daemon accepts no user but core"
		case u.PasswordHash == nil && len(u.SSHAuthorizedKeys) == 0:
			c.Refused = "if users differ, the machine-config daemon demands a key or a password of core; to remove the last one, remove the user"
		case !same(rest, types.PasswdUser{}):
			c.Refused = "if users differ, the machine-config daemon accepts only keys and password of core, also if the rest stays"
		default:
			continue
		}
		found = true
		d.add(c)
	}
	return found
}

// core adds changes of keys and password, made from one for both.
func (d *differ) core(old, new types.PasswdUser, c Change) {
	was, is := keysOf(old), keysOf(new)
	if !slices.Equal(was, is) {
		c.Kind, c.Detail = "SSH keys", fmt.Sprintf("%d to %d", len(was), len(is))
		d.add(c)
	}
	if value(old.PasswordHash) != value(new.PasswordHash) {
		c.Kind, c.Detail = "password", ""
		d.add(c)
	}
}

// keysOf returns the keys of a user, sorted and without duplicates.
func keysOf(u types.PasswdUser) (keys []string) {
	for _, k := range u.SSHAuthorizedKeys {
		keys = append(keys, string(k))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
