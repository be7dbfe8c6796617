package machineconfig

import (
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/problem"
)

// units adds the entries for systemd units: files, drop-ins, links of masked units, and the
// requested state of the links that enable them.
func (c *collector) addUnits(n document.Node, units []types.Unit) {
	nodes := n.Items()
	for i, u := range units {
		if !enable.IsName(u.Name) {
			nodes[i].Get("name").Fail("%s is not the name of a unit", problem.Quoted(u.Name))
			continue
		}
		c.unit(nodes[i], u)
		if w := wish(u); w.State != "" || w.Unmask {
			c.units.Wishes = append(c.units.Wishes, w)
		}
		c.checkInstall(nodes[i], u)
	}
	if len(c.units.Wishes) > 0 {
		c.install()
	}
}

// wish returns what is requested for the links of a unit. Without a request, a unit with contents
// follows the system's presets, as in Ignition. A unit of the image stays as it is: a drop-in alone
// does not undo what an administrator has enabled.
func wish(u types.Unit) enable.Wish {
	w := enable.Wish{Name: u.Name}
	switch masked := u.Mask != nil && *u.Mask; {
	case masked:
		return w
	case u.Enabled != nil && *u.Enabled:
		w.State = enable.Enabled
	case u.Enabled != nil:
		w.State = enable.Disabled
	case hasText(u.Contents):
		w.State = enable.Preset
	}
	w.Unmask = u.Mask != nil && !hasText(u.Contents)
	return w
}

// checkInstall rejects an [Install] section that cannot be followed.
func (c *collector) checkInstall(n document.Node, u types.Unit) {
	if !hasText(u.Contents) || u.Enabled == nil || !*u.Enabled {
		return
	}
	text := *u.Contents
	for _, d := range u.Dropins {
		if d.Contents != nil {
			text += "\n" + *d.Contents
		}
	}
	if _, err := enable.Of(u.Name, path.Join(enable.Dir, u.Name), text); err != nil {
		n.Fail("%v", err)
	}
}

// install collects the [Install] sections of the requested unit files.
func (c *collector) install() {
	c.units.Install = map[string]string{}
	for _, f := range c.all {
		if strings.HasPrefix(f.Path, enable.Dir+"/") && f.Kind == hostfiles.KindFile {
			c.units.Install[f.Path] = enable.Section(string(f.Content))
		}
	}
}

// unit adds a unit's file or the link that masks it, and its drop-ins.
func (c *collector) unit(n document.Node, u types.Unit) {
	masked := u.Mask != nil && *u.Mask
	file := path.Join(enable.Dir, u.Name)
	switch {
	case masked:
		c.put(n, hostfiles.NewLink(file, "/dev/null"))
	case hasText(u.Contents):
		c.put(n, hostfiles.NewFile(file, 0o644, []byte(*u.Contents)))
	}
	for j, d := range n.Get("dropins").Items() {
		if strings.Contains(u.Dropins[j].Name, "/") {
			d.Get("name").Fail("%s is not the name of a file", problem.Quoted(u.Dropins[j].Name))
			continue
		}
		dropin := path.Join(file+".d", u.Dropins[j].Name)
		if text := u.Dropins[j].Contents; hasText(text) {
			c.put(d, hostfiles.NewFile(dropin, 0o644, []byte(*text)))
		} else {
			c.put(d, hostfiles.Absent(dropin)) // as the machine-config-daemon
		}
	}
}

// hasText reports whether a unit or a drop-in has contents. Empty contents are none, as for Ignition
// and the machine-config-daemon: systemd takes an empty unit file for a mask.
func hasText(contents *string) bool { return contents != nil && *contents != "" }

// put adds an entry that already exists.
func (c *collector) put(n document.Node, f hostfiles.File) {
	c.add(n, f.Path, func() (hostfiles.File, error) { return f, nil })
}
