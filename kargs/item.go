package kargs

import (
	"slices"
	"strconv"
	"strings"
)

// item is what a change adds and removes as a whole. An argument, or the arguments of one pool of huge pages, because
// each "hugepages=" is the number of pages of the size before it.
type item struct {
	group string // items of one group affect each other
	key   string // of two items with the same key, at most one is wanted
	args  Line
	at    []int // the places of args on the line
}

// meaning is equal for items with the same effect.
func (it item) meaning() string {
	all := make([]string, len(it.args))
	for i, arg := range it.args {
		all[i] = meaning(arg)
	}
	return strings.Join(all, " ")
}

// names reports whether an item of a deletion stands for an item of a line: it has the same arguments, or the same
// first one and no others. That is a pool of huge pages without its number, or a bare key. A number alone is that of
// the default size.
func (it item) names(other item) bool {
	a, b := it.args[0], other.args[0]
	key, _, hasValue := parts(a)
	otherKey, _, _ := parts(b)
	same := meaning(a) == meaning(b) || key == otherKey && (!hasValue || key == "hugepagesz" && it.key == other.key)
	return same && (len(it.args) == 1 || item{args: it.args[1:]}.meaning() == item{args: other.args[1:]}.meaning())
}

// items divides a line into items, in the order of their first arguments.
func items(line Line) []item {
	var all []item
	pool := -1 // index of the last pool
	for i, arg := range line {
		group := groupOf(arg)
		key, size, _ := parts(arg)
		if group == hugePages && key == "hugepages" && pool >= 0 {
			all[pool].args = append(all[pool].args, arg)
			all[pool].at = append(all[pool].at, i)
			continue
		}
		it := item{group: group, key: meaning(arg), args: Line{arg}, at: []int{i}}
		if group == hugePages {
			pool = len(all)
			it.key = poolKey(key, size)
		}
		all = append(all, it)
	}
	return all
}

// poolKey identifies the pool that an argument begins: of each size, and of the size that is the
// default, the kernel makes one.
func poolKey(key, size string) string {
	if key != "hugepagesz" {
		return key
	}
	number, shift := strings.ToUpper(size), 0
	if i := strings.IndexAny(number, "KMGTPE"); i >= 0 {
		number, shift = number[:i], 10*(strings.IndexByte("KMGTPE", number[i])+1)
	}
	bytes, err := strconv.ParseUint(number, 0, 64)
	if err != nil {
		return key + "=" + size
	}
	return key + "=" + strconv.FormatUint(bytes<<shift, 10)
}

// without returns items without those that mean the same as one in known, each once.
func without(all, known []item) []item {
	var rest []item
	for _, it := range all {
		same := func(other item) bool { return other.meaning() == it.meaning() }
		once := func(other item) bool { return other.args.Equal(it.args) }
		if !slices.ContainsFunc(known, same) && !slices.ContainsFunc(rest, once) {
			rest = append(rest, it)
		}
	}
	return rest
}

// hasKey reports whether one of several items has a key.
func hasKey(all []item, key string) bool {
	return slices.ContainsFunc(all, func(it item) bool { return it.key == key })
}

// sameItems reports whether two lists have the same meaning.
func sameItems(a, b []item) bool {
	return slices.EqualFunc(a, b, func(x, y item) bool { return x.meaning() == y.meaning() })
}
