package entries

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/problem"
)

// units adds what makes systemd units so: their files and drop-ins, the link of one that
// is masked, and the links by which one is enabled.
func (m *maker) units(n document.Node, units []types.Unit) {
	nodes := n.Items()
	texts := map[string]string{}
	for _, u := range units {
		if u.Contents != nil {
			texts[u.Name] = *u.Contents
		}
	}
	for i, u := range units {
		if !enable.IsName(u.Name) {
			nodes[i].Get("name").Fail("%s is not the name of a unit", problem.Quoted(u.Name))
			continue
		}
		m.unit(nodes[i], u)
		m.enablement(nodes[i], u, texts)
	}
}

// unit adds a unit's file, or the link that masks it, and its drop-ins.
func (m *maker) unit(n document.Node, u types.Unit) {
	masked := u.Mask != nil && *u.Mask
	file := path.Join(enable.Dir, u.Name)
	switch {
	case masked:
		m.put(n, hostfiles.NewLink(file, "/dev/null"))
	case u.Contents != nil:
		m.put(n, hostfiles.NewFile(file, 0o644, []byte(*u.Contents)))
	}
	for j, d := range n.Get("dropins").Items() {
		if strings.Contains(u.Dropins[j].Name, "/") {
			d.Get("name").Fail("%s is not the name of a file", problem.Quoted(u.Dropins[j].Name))
			continue
		}
		if text := u.Dropins[j].Contents; text != nil && *text != "" {
			m.put(d, hostfiles.NewFile(path.Join(file+".d", u.Dropins[j].Name), 0o644, []byte(*text)))
		}
	}
}

// put adds an entry that is made already.
func (m *maker) put(n document.Node, f hostfiles.File) {
	m.add(n, f.Path, func() (hostfiles.File, error) { return f, nil })
}

// enablement adds the links of a unit that is enabled; of one that is disabled, that they
// are as the image has them.
func (m *maker) enablement(n document.Node, u types.Unit, texts map[string]string) {
	if u.Enabled == nil || u.Mask != nil && *u.Mask {
		return
	}
	if _, ours := texts[u.Name]; !ours {
		n.Get("enabled").Fail("not implemented: unit %s has no contents here, and what the image's unit asks for is not read", u.Name)
		return
	}
	todo, done := []string{u.Name}, map[string]bool{}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if done[name] {
			continue
		}
		done[name] = true
		text, ours := texts[name]
		if !ours {
			n.Fail("not implemented: unit %s is enabled with %s (Also=), and has no contents here", name, u.Name)
			continue
		}
		install, err := enable.Of(name, path.Join(enable.Dir, name), text)
		if err != nil {
			n.Fail("%v", err)
			continue
		}
		todo = append(todo, install.Also...)
		m.link(n, install.Links, *u.Enabled)
	}
}

// link adds the links that enable a unit, or their absence. Two units may ask for one.
func (m *maker) link(n document.Node, links map[string]string, enabled bool) {
	for _, at := range slices.Sorted(maps.Keys(links)) {
		if m.links[at] {
			continue
		}
		m.links[at] = true
		f := hostfiles.NewLink(at, links[at])
		if !enabled {
			f = hostfiles.Default(at)
		}
		m.put(n, f)
	}
}
