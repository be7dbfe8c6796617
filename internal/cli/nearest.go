package cli

import (
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/problem"
)

// nearest returns the only name that begins with a word, or else the one that differs least. It returns "" if each
// differs in more than two characters, or in half of the word.
func nearest(word string, names []string) string {
	if word == "" {
		return ""
	}
	word = strings.ToLower(word)
	var begun []string
	best, least := "", min(2, len(word)/2)+1
	for _, name := range names {
		if strings.HasPrefix(name, word) {
			begun = append(begun, name)
		}
		if d := problem.Distance(word, strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	if len(begun) == 1 {
		return begun[0]
	}
	return best
}

// Misspelt returns the name that a word, which is none of the names, was probably meant to be; ""
// if there is none.
func Misspelt(word string, names []string) string {
	if slices.Contains(names, word) {
		return ""
	}
	return nearest(word, names)
}

// Unknown returns the usage error for a value of a flag that is none of those known. what says
// what these are, in the plural. The hint has the nearest of them, if one is near.
func Unknown(flag, value, what string, known []string) error {
	err := fault.New(fault.Usage, "cannot use --%s=%s: it is none of the %s: %s", flag, value, what, strings.Join(known, ", "))
	if near := nearest(value, known); near != "" {
		return err.WithHint("did you mean %s?", near)
	}
	return err
}
