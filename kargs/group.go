package kargs

import (
	"slices"
	"strings"
)

// group is a group of wanted arguments whose relative order matters: those of one key, or of
// several keys that are interpreted together.
type group struct {
	name string
	args Line
}

// hugepages is the only group with several keys: each "hugepages=" is the number of pages of the
// size in the "hugepagesz=" before it.
const hugepages = "hugepages*"

// groupOf returns the name of the group that an argument belongs to.
func groupOf(arg string) string {
	key, _, _ := parts(arg)
	switch key {
	case "hugepagesz", "hugepages":
		return hugepages
	}
	return key
}

// groups divides wanted arguments into groups, in the order of their first members. An argument
// that is repeated in a group ("nosmt nosmt") has no further effect and is kept once. Two
// spellings of an argument are both kept, because other tools look for each literally.
func groups(wanted Line) []group {
	var all []group
	at := map[string]int{} // in all, by name
	for _, arg := range wanted {
		name := groupOf(arg)
		i, ok := at[name]
		if !ok {
			at[name] = len(all)
			all = append(all, group{name: name, args: Line{arg}})
			continue
		}
		if g := &all[i]; g.args[len(g.args)-1] != arg {
			g.args = append(g.args, arg)
		}
	}
	return all
}

func (g group) meanings() []string {
	wanted := make([]string, len(g.args))
	for i, arg := range g.args {
		wanted[i] = meaning(arg)
	}
	return wanted
}

// rule determines when the wanted arguments of a group take effect on a line.
type rule int

const (
	lastWins   rule = iota // a later value replaces an earlier one: the wanted values must come last
	collects               // each value counts: all wanted values must be present, in order
	positional             // neighbours belong together: the wanted arguments must be adjacent
)

// rule returns lastWins unless the values of the key are known to accumulate, according to the
// kernel's admin-guide/kernel-parameters and dracut.cmdline(7).
func (g group) rule() rule {
	if g.name == hugepages {
		return positional
	}
	switch g.name {
	case "console", "earlycon", "memmap", "crashkernel", "acpi_osi", "ip", "nameserver", "ifname",
		"vlan", "bond", "bridge", "team", "rd.route", "module_blacklist", "initcall_blacklist",
		"systemd.mask", "systemd.wants", "systemd.setenv", "dyndbg":
		return collects
	}
	if strings.HasPrefix(g.name, "rd.") {
		return collects
	}
	return lastWins
}

func (r rule) inEffect(have, wanted []string) bool {
	switch r {
	case collects:
		return isSubsequence(have, wanted)
	case positional:
		return isRun(have, wanted)
	}
	return overlap(have, wanted) == len(wanted)
}

func isSubsequence(have, wanted []string) bool {
	for _, h := range have {
		if len(wanted) > 0 && h == wanted[0] {
			wanted = wanted[1:]
		}
	}
	return len(wanted) == 0
}

func isRun(have, wanted []string) bool {
	for i := 0; i+len(wanted) <= len(have); i++ {
		if slices.Equal(have[i:i+len(wanted)], wanted) {
			return true
		}
	}
	return len(wanted) == 0
}
