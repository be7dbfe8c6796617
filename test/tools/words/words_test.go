package main

import (
	"slices"
	"strings"
	"testing"
)

func TestDocument(t *testing.T) {
	long := strings.Repeat("word ", 30)
	for text, want := range map[string][]string{
		"What an image is says the digest.":                        {"what … is says"},
		"The error goes\nup. A file, and the\nowner of it.":        {"goes", "of it"},
		"It leads into a loop, as is said, by a node whose disk":   {"is said", "leads into", "whose"},
		"- what it is\n- says nothing":                             nil,
		"the size of it is known":                                  nil,
		"```\nwhose\n```\n`whose` [a](whose)":                      nil,
		"<!-- test: whose -->":                                     nil,
		long + "end":                                               {"long sentence"},
		"Long " + strings.TrimSuffix(long, " word ") + ". " + long: nil,
		"| " + long + "| " + long + " |":                           nil,
		"A line\n" + long + "\n\n" + long:                          {"long sentence"},
	} {
		if got := names(document(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestCode(t *testing.T) {
	source := "package a\n\n// A is\n// whose.\n//\n//go:whose\nfunc A() { b(\"whose\", \"the file whose owner\", `c goes\nd`) } // the end of it\n"
	for messages, want := range map[bool][]string{true: {"of it", "whose", "whose"}, false: {"of it", "whose"}} {
		if got := names(code(source, messages)); !slices.Equal(got, want) {
			t.Errorf("messages %t: %q, want %q", messages, got, want)
		}
	}
}

// TestTrailing: the comment behind a line of code is none with the comment above the next one.
func TestTrailing(t *testing.T) {
	words := strings.Repeat("word ", 20)
	if got := names(code("package a\n\nvar a int // "+words+"\n// b "+words+"\nvar b int\n", false)); got != nil {
		t.Errorf("%q, want none", got)
	}
}

func names(finds [][2]string) (names []string) {
	for _, f := range finds {
		names = append(names, f[0])
	}
	slices.Sort(names)
	return names
}
