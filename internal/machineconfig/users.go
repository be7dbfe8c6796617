package machineconfig

import (
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/document"
)

// core is the only user that a MachineConfig can change on a running machine.
const core = "core"

// ofCore reports whether a member of user core is applied. The others take effect only when the
// user is made.
func ofCore(member string) bool {
	return slices.Contains([]string{"name", "sshAuthorizedKeys", "passwordHash"}, member)
}

// users adds the entries for users' settings.
func (c *collector) addUsers(n document.Node, users []types.PasswdUser) {
	for i, u := range users {
		one := n.Items()[i]
		if c.without[one.Path] {
			continue
		}
		if u.Name != core {
			one.Get("name").Fail("not implemented: a user other than %s", core)
			continue
		}
		for key, setting := range one.Members() {
			if !ofCore(key) && !setting.IsEmpty() && !c.without[setting.Path] {
				setting.Fail("not implemented: of user %s only sshAuthorizedKeys and passwordHash are applied", core)
			}
		}
		c.keys(one, u.SSHAuthorizedKeys)
		c.password(one.Get("passwordHash"), u.PasswordHash)
	}
}

// keys adds the file with core's SSH keys, one per line, and its directories, which only core
// may enter.
func (c *collector) keys(n document.Node, keys []types.SSHAuthorizedKey) {
	if len(keys) == 0 {
		return
	}
	var text strings.Builder
	for _, key := range keys {
		text.WriteString(strings.TrimSuffix(string(key), "\n") + "\n")
	}
	paths := hostfiles.SSHKeys(core)
	for _, f := range []hostfiles.File{
		hostfiles.NewDirectory(paths[0], 0o700), hostfiles.NewDirectory(paths[1], 0o700), hostfiles.NewFile(paths[2], 0o600, []byte(text.String())),
	} {
		f.User, f.Group = core, core
		c.put(n, f)
	}
}

// password adds core's password hash.
func (c *collector) password(n document.Node, hash *string) {
	if hash == nil {
		return
	}
	if err := hostfiles.CheckPassword(*hash); err != nil {
		n.Fail("cannot be the hash of a password: %v", err)
		return
	}
	c.collect(n, hostfiles.NewPassword(core, *hash))
}
