package rehearse

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
	"machine-pivot/kargs"
)

// wish is a module of dracut that the kernel arguments, or what / stands on, ask the initramfs for.
type wish struct {
	module string // its first name
	why    string
	vital  bool // / needs it
}

// names returns the names of the modules of dracut that do what one does. They differ between releases.
func (w wish) names() []string {
	if w.module == "network" {
		return []string{"network", "network-manager", "network-legacy", "systemd-networkd", "connman"}
	}
	return []string{w.module}
}

// wishes returns what is asked of the initramfs.
func (i image) wishes(line kargs.Line, facts Facts) (all []wish) {
	vital := map[string]bool{}
	for _, f := range facts.FileSystems {
		if f.At == "/" {
			for _, kind := range f.On {
				vital[kind] = kind != "multipath" || !i.onePath(line, facts)
				vital["network"] = vital["network"] || slices.Contains([]string{"iscsi", "nvmf", "clevis-pin-tang"}, kind)
				all = append(all, wish{module: kind, why: "/ stands on it", vital: vital[kind]})
				if kind == "crypt" {
					all = append(all, wish{module: opener, why: "/ stands on it", vital: true})
				}
			}
		}
	}
	for _, arg := range line {
		key, value, _ := strings.Cut(arg, "=")
		module := moduleFor(key)
		known := slices.ContainsFunc(all, func(w wish) bool { return w.module == module })
		if module != "" && value != "0" && !known {
			all = append(all, wish{module: module, why: "kernel argument " + printable.Line(key) + "=", vital: vital[module]})
		}
	}
	return all
}

// onePath reports whether a system starts without multipath, from one of its paths. LUKS finds its disk by what is on it,
// as root= can. LVM and md do not use two devices that are the same. With rd.multipath, Fedora CoreOS waits for the map of /boot, too.
func (i image) onePath(line kargs.Line, facts Facts) bool {
	above, root := "", append([]string{""}, line.Values("root")...)
	for _, f := range facts.FileSystems {
		if at := slices.Index(f.On, "multipath"); f.At == "/" && at > 0 {
			above = f.On[at-1]
		}
	}
	asked := slices.ContainsFunc(line.Values("rd.multipath"), func(value string) bool { return value != "0" })
	waits, err := i.repo.HasPath(i.commit, "usr/lib/systemd/system-generators/coreos-boot-mount-generator")
	return (!asked || err == nil && !waits) && (above == "crypt" || above == "" && named(root[len(root)-1]))
}

// named reports whether a value of root= names a file system or a partition by what is on the disk.
func named(root string) bool {
	return slices.ContainsFunc([]string{"LABEL=", "UUID=", "PARTLABEL=", "PARTUUID="}, func(by string) bool { return strings.HasPrefix(root, by) })
}

// moduleFor returns the module of dracut that a kernel argument asks for; "" if it asks for none.
func moduleFor(key string) string {
	for prefix, module := range map[string]string{"rd.luks": "crypt", "rd.lvm": "lvm", "rd.md": "mdraid", "rd.multipath": "multipath", "rd.iscsi": "iscsi", "rd.nvmf": "nvmf", "ip": "network"} {
		if key == prefix || strings.HasPrefix(key, prefix+".") {
			return module
		}
	}
	return ""
}

// Asking returns those arguments of a line by which a system is judged. Of the values, which may be secrets, it has only
// those that switch something off, and how / is named.
func Asking(line kargs.Line) kargs.Line {
	asking := kargs.Line{}
	for _, arg := range line {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case key == unified, arg == force, key == "root" && named(value):
			asking = append(asking, arg)
		case key == "root": // the last one counts
			asking = append(asking, key)
		case moduleFor(key) != "" && value == "0":
			asking = append(asking, key+"=0")
		case moduleFor(key) != "":
			asking = append(asking, key)
		}
	}
	return asking
}

// earlyOnes returns what the initramfs of the new system lacks of what is needed before / is mounted. What today's
// lacks, too, is not needed: it is read only if there is something to compare. If the initramfs is going to be rebuilt
// on this machine, its content is unknown.
func (s Stage) earlyOnes(c Change, next image, all []needed, facts Facts) (found []verdict.Finding, err error) {
	all = slices.DeleteFunc(slices.Clone(all), func(n needed) bool { return !n.early || len(n.answer) == 0 })
	asked := next.wishes(c.Line, facts)
	if c.Rebuilt || len(all)+len(asked) == 0 {
		return nil, nil
	}
	new, err := next.early()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(n needed) bool { return slices.ContainsFunc(n.answer, new.has) })
	asked = slices.DeleteFunc(asked, func(w wish) bool {
		needless := w.module == opener && !new.Dracut["crypt"]
		return new.Dracut == nil || needless || slices.ContainsFunc(w.names(), func(name string) bool { return new.Dracut[name] })
	})
	if len(all)+len(asked) == 0 {
		return nil, nil
	}
	today := facts.Today
	if today == nil {
		if today, err = s.Today(c.Running, facts); err != nil {
			return nil, err
		}
	}
	const remedy = "use an image with it in its initramfs: build that with dracut --add, or --add-drivers"
	for _, n := range all {
		if slices.ContainsFunc(n.today, func(name string) bool { return slices.Contains(today.Modules, name) }) {
			f := verdict.Finding{Name: verdict.Initramfs, Weight: verdict.Warned, Text: fmt.Sprintf("%s, and the new initramfs lacks its driver (%s, by %s)", n.text, n.short, strings.Join(n.answer, ", "))}
			found = append(found, f.RefuseIf(n.vital, remedy))
		}
	}
	for _, w := range asked {
		if !slices.ContainsFunc(w.names(), func(name string) bool { return slices.Contains(today.Dracut, name) }) {
			continue
		}
		f := verdict.Finding{Name: verdict.Initramfs, Weight: verdict.Warned, Text: fmt.Sprintf("the new initramfs lacks dracut's module %s, which today's has (%s)", w.module, w.why)}
		found = append(found, f.RefuseIf(w.vital, remedy))
	}
	return found, nil
}

// Today returns what the initramfs of the running system has.
func (s Stage) Today(running ostree.Checksum, facts Facts) (*Initramfs, error) {
	system, err := s.open(running)
	if err != nil {
		return nil, err
	}
	old, err := system.early()
	if err != nil {
		return nil, err
	}
	today := Initramfs{Modules: []string{}, Dracut: slices.Sorted(maps.Keys(old.Dracut))}
	for _, n := range neededOf(facts) {
		for _, name := range n.today {
			if old.has(name) && !slices.Contains(today.Modules, name) {
				today.Modules = append(today.Modules, name)
			}
		}
	}
	return &today, nil
}
