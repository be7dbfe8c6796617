package rehearse

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
)

// ifcfgPlugin is the plugin by which NetworkManager reads ifcfg files. el10 and Fedora since 41 have none.
const ifcfgPlugin = "libnm-settings-plugin-ifcfg-rh.so"

// ifcfg warns of connections in ifcfg files, which only the running system's NetworkManager reads.
func (s Stage) ifcfg(c Change, next image) subject {
	names := slices.DeleteFunc(c.Own.named("/etc/sysconfig/network-scripts/ifcfg-*"), func(name string) bool { return path.Base(name) == "ifcfg-lo" })
	if len(names) == 0 {
		return subject{judge: nothing}
	}
	return subject{judge: func(context.Context, []ending) ([]verdict.Finding, error) {
		reads, err := next.readsIfcfg()
		if reads || err != nil {
			return nil, err
		}
		running, err := s.open(c.Running)
		if err != nil {
			return nil, err
		}
		if read, err := running.readsIfcfg(); !read || err != nil {
			return nil, err
		}
		return []verdict.Finding{{Name: "ifcfg", Weight: verdict.Warned, Text: fmt.Sprintf("the new system's NetworkManager does not read ifcfg files: connections that only they have are lost (%s; nmcli connection migrate makes keyfiles of them)",
			printable.Line(strings.Join(names, ", ")))}}, nil
	}}
}

// readsIfcfg reports whether NetworkManager of an image reads ifcfg files. One without NetworkManager has another reader.
func (i image) readsIfcfg() (bool, error) {
	has := false
	for _, lib := range []string{"usr/lib64/NetworkManager", "usr/lib/NetworkManager"} {
		tree, err := i.repo.DirTree(i.commit, lib)
		if err != nil {
			return false, err
		}
		versions, err := i.repo.ReadDirectory(tree)
		if err != nil {
			continue // there is none
		}
		has = has || len(versions.Dirs) > 0
		for _, version := range versions.Dirs {
			if plugins, err := i.repo.ReadDirectory(version.Tree); err == nil && plugins.Files[ifcfgPlugin] != (ostree.Checksum{}) {
				return true, nil
			}
		}
	}
	return !has, nil
}

const udevadm = "/usr/bin/udevadm"

// interfaces asks the running and the new udev, in the same place, how they name the network interfaces in use, and warns of
// those that get another name. Of an interface without the name that the running udev gives it, something else decides.
func (s Stage) interfaces(c Change, facts Facts) subject {
	sub := subject{judge: nothing}
	names := slices.DeleteFunc(slices.Clone(facts.Interfaces), func(name string) bool { return pinned(c.Own, name) })
	if len(names) == 0 || c.Running == (ostree.Checksum{}) || slices.Contains(c.Line.Values("net.ifnames"), "0") {
		return sub
	}
	for _, name := range names {
		sub.programs = append(sub.programs, []string{udevadm, "test-builtin", "net_id", "/sys/class/net/" + name})
	}
	sub.judge = func(ctx context.Context, ended []ending) (found []verdict.Finding, err error) {
		if !slices.ContainsFunc(names, func(name string) bool { return ended[slices.Index(names, name)].interfaceName() != name }) {
			return nil, nil
		}
		running, err := s.run(ctx, c.Running, nil, sub.programs...)
		if err != nil {
			return nil, err
		}
		for i, name := range names {
			if next := ended[i].interfaceName(); next != "" && next != name && running[i].interfaceName() == name {
				found = append(found, verdict.Finding{Name: "interface-names", Weight: verdict.Warned, Text: fmt.Sprintf("the new system's udev calls network interface %s %s: settings for the old name do not apply to it (net.naming-scheme= keeps names, or a .link file)",
					printable.Line(name), printable.Line(next))})
			}
		}
		return found, nil
	}
	return sub
}

// pinned reports whether a file of the machine's gives an interface its name (systemd.link(5)).
func pinned(o Own, name string) bool {
	return slices.ContainsFunc(o.named("/etc/systemd/network/*.link"), func(file string) bool {
		return slices.Contains(strings.Fields(string(o.Files[file].Content)), "Name="+name)
	})
}

// interfaceName returns the name that udev's net_id gives, by the usual policy of 99-default.link; "" for none.
func (e ending) interfaceName() string {
	names := map[string]string{}
	for line := range strings.Lines(e.Said) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		names[key] = value
	}
	for _, key := range []string{"ID_NET_NAME_FROM_DATABASE", "ID_NET_NAME_ONBOARD", "ID_NET_NAME_SLOT", "ID_NET_NAME_PATH"} {
		if name := names[key]; name != "" {
			return name
		}
	}
	return ""
}
