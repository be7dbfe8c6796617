package update

import (
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/machineconfig/ignition"
)

// part is an element of a section.
type part struct {
	name   string
	detail string // for users, if there is something to say
	form   string
}

// section is a section of a config that the operator does not apply to a running machine.
type section struct {
	kind  string             // of its changes
	forms [2]string          // of the old and the new one
	parts [2]map[string]part // likewise
	empty bool               // whether the new one is empty
}

// sectionOf returns a section that is a list.
func sectionOf[V any](kind string, old, new []V, describe func(V) part) section {
	s := section{kind: kind, empty: len(new) == 0}
	for i, list := range [][]V{old, new} {
		s.forms[i] = canonical(append([]V{}, list...))
		s.parts[i] = map[string]part{}
		for _, v := range list {
			p := describe(v)
			p.form = canonical(v)
			s.parts[i][p.name] = p
		}
	}
	return s
}

// single returns a section that is one object.
func single(kind string, old, new any) section {
	s := section{kind: kind, forms: [2]string{canonical(old), canonical(new)}}
	for i := range s.parts {
		s.parts[i] = map[string]part{"": {form: s.forms[i]}}
	}
	return s
}

// sectionsOf returns the sections of disruption.OperatorSections.
func sectionsOf(old, new ignition.Config) map[string]section {
	old.Ignition.Version, new.Ignition.Version = "", "" // the operator converts both to one version
	return map[string]section{
		"ignition":        single("section ignition", old.Ignition, new.Ignition),
		"kernelArguments": single("Ignition's kernel arguments", old.KernelArguments, new.KernelArguments),
		"passwd.groups":   sectionOf("group", old.Passwd.Groups, new.Passwd.Groups, func(g types.PasswdGroup) part { return part{name: g.Name} }),
		"storage.directories": sectionOf("directory", old.Storage.Directories, new.Storage.Directories, func(d types.Directory) part {
			return part{name: d.Path, detail: "mode " + modeOf(d.Mode, 0o755) + " of " + ownersOf(d.Node)}
		}),
		"storage.disks":       sectionOf("disk", old.Storage.Disks, new.Storage.Disks, func(d types.Disk) part { return part{name: d.Device} }),
		"storage.filesystems": sectionOf("disk", old.Storage.Filesystems, new.Storage.Filesystems, func(f types.Filesystem) part { return part{name: "file system on " + f.Device} }),
		"storage.links":       sectionOf("link", old.Storage.Links, new.Storage.Links, link),
		"storage.luks":        sectionOf("disk", old.Storage.Luks, new.Storage.Luks, func(l types.Luks) part { return part{name: "LUKS " + l.Name} }),
		"storage.raid":        sectionOf("disk", old.Storage.Raid, new.Storage.Raid, func(r types.Raid) part { return part{name: "RAID " + r.Name} }),
	}
}

func link(l types.Link) part {
	kind := "to "
	if l.Hard != nil && *l.Hard {
		kind = "hard, to "
	}
	return part{name: l.Path, detail: kind + value(l.Target)}
}

// sections compares what is made only when a machine is installed.
func (d *differ) sections(old, new ignition.Config) {
	compared := sectionsOf(old, new)
	for _, known := range disruption.OperatorSections() {
		s := compared[known.Name]
		if s.forms[0] == s.forms[1] {
			continue
		}
		treatment := d.policy.Section(known)
		if treatment == disruption.Refused || treatment == disruption.RefusedUnlessEmpty && !s.empty {
			d.parts(s, Change{Kind: s.kind, Refused: "the machine-config daemon refuses any difference in " + known.Name + ", which counts when a machine is installed"})
			continue
		}
		d.parts(s, Change{Kind: s.kind, Actions: only(disruption.None), Because: "what is there stays"})
		d.note("the machine-config daemon does nothing about %s on a running machine; machines that are installed later get what the new one has", known.Name)
	}
}

// parts adds a change, made from one for all, for each element that differs.
func (d *differ) parts(s section, c Change) {
	before := len(d.update.Changes)
	for _, name := range union(s.parts[0], s.parts[1]) {
		was, had := s.parts[0][name]
		is, has := s.parts[1][name]
		c.Name = name
		switch {
		case had && has && was.form == is.form:
			continue
		case !had:
			c.Action, c.Detail = actionAdd, is.detail
		case !has:
			c.Action, c.Detail = actionRemove, ""
		case was.detail != is.detail:
			c.Action, c.Detail = actionChange, was.detail+", now "+is.detail
		default:
			c.Action, c.Detail = actionChange, ""
		}
		d.add(c)
	}
	if len(d.update.Changes) == before {
		c.Name, c.Action, c.Detail = "", actionChange, "the order"
		d.add(c)
	}
}
