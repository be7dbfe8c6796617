package kargs

import (
	"slices"
	"strings"
)

// group is the wanted arguments whose order among themselves has a meaning:
// those of one key, or of several keys that are read together.
type group struct {
	name string
	args Line
}

// hugepages is the one group of several keys: each "hugepages=" counts pages of
// the size named by the "hugepagesz=" before it.
const hugepages = "hugepages*"

// groupOf names the group that an argument belongs to.
func groupOf(arg string) string {
	key, _, _ := parts(arg)
	switch key {
	case "hugepagesz", "hugepages":
		return hugepages
	}
	return key
}

// groups sorts wanted arguments into groups, in the order of their first
// members. The same argument twice in a row in a group says nothing more than
// once ("nosmt nosmt") and is kept once; in two spellings it is kept in both, for
// each is looked for to the letter.
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

// rule says when arguments of a group that stand on a line have their effect.
type rule int

const (
	lastWins   rule = iota // a later value replaces an earlier one: the wanted ones must come last
	collects               // each value counts: all wanted ones are there, in their order
	positional             // neighbours belong together: the wanted ones stand side by side
)

// rule is lastWins unless the key is known to add up, from the kernel's
// admin-guide/kernel-parameters and dracut.cmdline(7).
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
