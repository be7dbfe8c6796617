package kargs

// Ignored returns, for each argument without an effect because of another one that sets the same, the place of that one. Of
// most keys the last argument counts, of some the first; some settings the kernel never makes weaker.
func (l Line) Ignored() map[int]int {
	all, counts, ignored := items(l), map[string]item{}, map[int]int{}
	settings := make([]string, len(all))
	for i, it := range all {
		settings[i] = it.setting()
		before, again := counts[settings[i]]
		if !again || !it.firstCounts() && strength(it.args[0]) >= strength(before.args[0]) {
			counts[settings[i]] = it
		}
	}
	for i, it := range all {
		if that := counts[settings[i]]; settings[i] != "" && that.meaning() != it.meaning() {
			ignored[it.at[0]] = that.at[0]
		}
	}
	return ignored
}

// setting identifies what an item sets; "" if others of its key count besides it.
func (it item) setting() string {
	switch rule := (group{name: it.group}).rule(); {
	case rule == eachCounts || it.group == "console": // there is output on each console
		return ""
	case rule == firstCounts:
		return it.key
	}
	return it.group
}

// firstCounts reports whether later items that set the same are ignored: see keyRules, and kernel/sched/isolation.c.
func (it item) firstCounts() bool {
	return (group{name: it.group}).rule() == firstCounts || it.group == "isolcpus" || it.group == "nohz_full"
}

// strength returns how strong a setting is that the kernel never makes weaker.
func strength(arg string) int {
	switch meaning(arg) {
	case "lockdown=integrity", "module.sig_enforce=1", "module.sig_enforce":
		return 1
	case "lockdown=confidentiality":
		return 2
	}
	return 0
}
