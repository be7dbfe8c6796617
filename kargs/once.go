package kargs

// Once returns, for each argument that the kernel ignores because an earlier one has set the same, the place of that one.
// These are pools of huge pages, which the kernel makes once: see keyRules.
func (l Line) Once() map[int]int {
	ignored, first := map[int]int{}, map[string]item{}
	for _, it := range items(l) {
		if (group{name: it.group}).rule() != firstCounts {
			continue
		}
		before, again := first[it.key]
		if !again {
			first[it.key] = it
		} else if before.meaning() != it.meaning() {
			ignored[it.at[0]] = before.at[0]
		}
	}
	return ignored
}
