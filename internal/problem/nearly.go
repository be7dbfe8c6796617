package problem

import "strings"

// Nearly reports whether a name is probably another one that is misspelt: by a slip, or by two where that other one has eight
// characters or more. Shorter names that differ so are names of their own. Upper and lower case are alike.
func Nearly(name, known string) bool {
	slips := 1
	if len(known) >= 8 {
		slips = 2
	}
	return Distance(strings.ToLower(name), strings.ToLower(known)) <= slips
}

// Distance returns how many characters must be inserted, removed, replaced, or swapped with the
// next one, to turn a into b.
func Distance(a, b string) int {
	var before []int // rows of the table: before, last and row are for the first i-1, i and i+1 characters of a
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			same := last[j]
			if a[i] != b[j] {
				same++
			}
			row[j+1] = min(same, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
