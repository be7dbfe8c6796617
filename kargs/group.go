package kargs

import (
	"slices"
	"strings"
)

// group has wanted items that affect each other, in the wanted order.
type group struct {
	name  string
	items []item
}

// groups divides wanted items into groups, in the order of their first members. An item that is
// repeated in a group ("nosmt nosmt") has no further effect and is kept once. Two spellings of
// an argument are both kept, because other tools look for each literally.
func groups(wanted []item) []group {
	var all []group
	index := map[string]int{} // of each name in all; a hostile MachineConfig has a hundred thousand
	for _, it := range wanted {
		i, there := index[it.group]
		if !there {
			index[it.group] = len(all)
			all = append(all, group{it.group, []item{it}})
			continue
		}
		g := &all[i]
		if last := g.items[len(g.items)-1]; !last.args.Equal(it.args) {
			g.items = append(g.items, it)
		}
	}
	return all
}

// hugePages is the group of all arguments about pools of huge pages.
const hugePages = "hugepages*"

// groupOf returns the name of the group that an argument belongs to: its key, except where the
// kernel or systemd reads several keys as one, or one key as several.
func groupOf(arg string) string {
	key, value, _ := parts(arg)
	switch key {
	case "default_hugepagesz", "hugepagesz", "hugepages":
		return hugePages
	case "crashkernel": // the last one of each kind counts (kernel/crash_reserve.c)
		if i := strings.LastIndexByte(value, ','); i >= 0 && slices.Contains([]string{"high", "low", "cma"}, value[i+1:]) {
			return key + value[i:]
		}
	case "systemd.setenv": // the last one of each variable counts
		name, _, _ := strings.Cut(value, "=")
		return key + "=" + name
	}
	return key
}

// rule determines which of the wanted items of a group take effect on a line.
type rule int

const (
	// lastCounts is the rule of keys for which the last instance counts, or counts most: the wanted items must be the
	// last of their group. Most handlers in the kernel overwrite what an earlier instance has set. It also suits keys
	// of which nothing is known.
	lastCounts rule = iota
	// eachCounts is the rule of keys of which each instance counts for itself. All wanted items must be there, in their
	// order, and others of the same key may be between and after them.
	eachCounts
	// firstCounts is the rule of pools of huge pages: each can be specified once, and the kernel
	// ignores later instances. The wanted items must be the only ones with their keys, in order.
	firstCounts
)

// keyRule is the rule of a key, with the source that says so.
type keyRule struct {
	key    string // KEY, PREFIX* or *SUFFIX, in normal form
	rule   rule
	source string
}

// keyRules has the keys for which more is known than that the last instance counts. The later
// rule applies.
func keyRules() []keyRule {
	const parameters = "Linux, admin-guide/kernel-parameters"
	return []keyRule{
		{hugePages, firstCounts, "Linux, admin-guide/mm/hugetlbpage: once for each size, once for the default size; the first hugepages= is that of the default size"},
		{"console", lastCounts, "Linux, admin-guide/serial-console: output to each console, but /dev/console is the last one"},

		{"earlycon", eachCounts, parameters + ": each sets up one console"},
		{"memmap", eachCounts, parameters + ": each adds one region"},
		{"acpi_osi", eachCounts, parameters + ": each changes the list of strings, in order"},
		{"initcall_blacklist", eachCounts, "Linux, init/main.c: each adds to the list"},
		{"cgroup_disable", eachCounts, "Linux, kernel/cgroup/cgroup.c: each disables controllers"},
		{"cgroup_no_v1", eachCounts, "Linux, kernel/cgroup/cgroup-v1.c: each disables controllers of version 1"},
		{"dyndbg", eachCounts, "Linux, admin-guide/dynamic-debug-howto: each is executed, in order"},
		{"*.dyndbg", eachCounts, "as dyndbg, for one module"},
		{"modprobe.blacklist", eachCounts, "kmod, libkmod/libkmod-config.c: each adds to the list"},

		{"systemd.mask", eachCounts, "kernel-command-line(7) of systemd: may be used more than once"},
		{"systemd.wants", eachCounts, "kernel-command-line(7) of systemd: may be used more than once"},

		{"rd.*", eachCounts, "dracut.cmdline(7): most may be used more than once (rd.luks.*, rd.lvm.*, rd.route, rd.driver.*)"},
		{"ip", eachCounts, "dracut.cmdline(7): one for each interface"},
		{"ifname", eachCounts, "dracut.cmdline(7): one for each interface"},
		{"nameserver", eachCounts, "dracut.cmdline(7): may be used more than once"},
		{"vlan", eachCounts, "dracut.cmdline(7): one for each interface"},
		{"bond", eachCounts, "dracut.cmdline(7): one for each interface"},
		{"bridge", eachCounts, "dracut.cmdline(7): one for each interface"},
		{"team", eachCounts, "dracut.cmdline(7): one for each interface"},
	}
}

func (k keyRule) matches(group string) bool {
	switch {
	case k.key == group:
		return true
	case strings.HasSuffix(k.key, ".*"):
		return strings.HasPrefix(group, k.key[:len(k.key)-1])
	case strings.HasPrefix(k.key, "*."):
		return strings.HasSuffix(group, k.key[1:])
	}
	return false
}

func (g group) rule() rule {
	for _, known := range slices.Backward(keyRules()) {
		if known.matches(g.name) {
			return known.rule
		}
	}
	return lastCounts
}

// placed returns the wanted items with those of the line that must follow one of them. A "hugepages=" without a size is
// that of the default size only if no size precedes it.
func (g group) placed(have []item) []item {
	first := slices.IndexFunc(g.items, func(it item) bool { return it.key == "hugepages" })
	if g.rule() != firstCounts || first < 0 {
		return g.items
	}
	foreign := slices.DeleteFunc(slices.Clone(have), func(it item) bool { return hasKey(g.items, it.key) })
	return slices.Concat(g.items[first:first+1], foreign, g.items[:first], g.items[first+1:])
}

// inEffect returns the places in have of the items that take effect as the first items of wanted. They may stay where
// they are; only the rest of wanted must follow.
func (r rule) inEffect(have, wanted []item) []int {
	switch r {
	case eachCounts:
		return prefixIn(have, wanted)
	case firstCounts:
		var at []int
		var found []item
		for i, it := range have {
			if hasKey(wanted, it.key) {
				at, found = append(at, i), append(found, it)
			}
		}
		if sameItems(found, wanted) {
			return at
		}
		return nil
	}
	for n := min(len(have), len(wanted)); n > 0; n-- {
		if first := len(have) - n; sameItems(have[first:], wanted[:n]) {
			return numbers(first, len(have))
		}
	}
	return nil
}

// prefixIn returns the places in have of the longest prefix of wanted that have has in this
// order, with others between them.
func prefixIn(have, wanted []item) []int {
	var at []int
	for i, it := range have {
		if n := len(at); n < len(wanted) && it.meaning() == wanted[n].meaning() {
			at = append(at, i)
		}
	}
	return at
}

// numbers returns the numbers from first up to, not including, end.
func numbers(first, end int) []int {
	var all []int
	for i := first; i < end; i++ {
		all = append(all, i)
	}
	return all
}
