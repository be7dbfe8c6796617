package kargs

import "slices"

// spell changes arguments of line to the spelling in wanted if line has them in another spelling
// only, and returns these arguments. line must have an argument with the same meaning for each
// wanted argument.
func spell(line, wanted Line) Line {
	at := map[string][]int{} // indexes of arguments that are not taken yet, by meaning
	for i, arg := range line {
		at[meaning(arg)] = append(at[meaning(arg)], i)
	}
	take := func(arg string, fits func(have string) bool) (place int, ok bool) {
		places := at[meaning(arg)]
		for i, place := range slices.Backward(places) { // the last one is the most likely to count
			if fits(line[place]) {
				at[meaning(arg)] = slices.Delete(places, i, i+1)
				return place, true
			}
		}
		return 0, false
	}
	var others Line
	for _, arg := range distinct(wanted) {
		if _, ok := take(arg, func(have string) bool { return have == arg }); !ok {
			others = append(others, arg)
		}
	}
	var respelled Line
	for _, arg := range others {
		if place, ok := take(arg, func(string) bool { return true }); ok {
			line[place] = arg
			respelled = append(respelled, arg)
		}
	}
	return respelled
}

// distinct returns a line without literal duplicates.
func distinct(line Line) Line {
	seen := map[string]bool{}
	var once Line
	for _, arg := range line {
		if !seen[arg] {
			once = append(once, arg)
		}
		seen[arg] = true
	}
	return once
}
