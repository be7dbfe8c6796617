// Command words prints how many patterns that are hard to read each document and each file of code has, and the words of the
// documents. With the name of one, it prints the sentences. A document counts with its text outside of code
// blocks, code with its comments and, except in tests, with its string literals of several words. "make words" runs it.
package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/test/suites/docs"
)

var (
	patterns = map[string]*regexp.Regexp{
		"what … is says": regexp.MustCompile(`(?i)\bwhat\b[^.:;]* (?:is|are|was|has|have|do|does|can) says?\b`),
		"goes":           regexp.MustCompile(`(?i)\bgoes\b`),
		"leads into":     regexp.MustCompile(`(?i)\bleads? into\b`),
		"is said":        regexp.MustCompile(`(?i)\b(?:is|are|was|were|be) said\b`),
		"whose":          regexp.MustCompile(`(?i)\bwhose\b`),
		"of it":          regexp.MustCompile(`\bof it(?:[,;:]|$)`),
		"long sentence":  regexp.MustCompile(`^(?:\S+\s+){30}\S`),
	}
	inline    = regexp.MustCompile("`[^`]*`")
	target    = regexp.MustCompile(`\]\([^)\s]*\)`)
	skipped   = regexp.MustCompile(`^(?:\..+|testdata|bin|vendor)$`)
	fullStop  = regexp.MustCompile(`[.!?][)"*]*(?:\s|$)`)
	separates = regexp.MustCompile(`^(?:$|(?:#+|[-*]|\d+\.) )`)
)

// text collects lines, and what is found in them. A sentence ends with its paragraph, list item or cell of a table.
type text struct {
	lines []string
	finds [][2]string
}

func (t *text) end() {
	all := target.ReplaceAllString(inline.ReplaceAllString(strings.Join(t.lines, " "), "code"), "]")
	for _, sentence := range fullStop.Split(all, -1) {
		for name, pattern := range patterns {
			for range pattern.FindAllString(strings.TrimSpace(sentence), -1) {
				t.finds = append(t.finds, [2]string{name, sentence})
			}
		}
	}
	t.lines = nil
}

func (t *text) add(line string) {
	for i, cell := range strings.Split(strings.TrimSpace(line), "|") {
		if i > 0 || separates.MatchString(cell) {
			t.end()
		}
		t.lines = append(t.lines, cell)
	}
}

// document returns what is found in a Markdown file.
func document(source string) [][2]string {
	var t text
	for _, part := range docs.Parse(source) {
		if part.Block != nil || part.Note != "" || strings.HasPrefix(part.Text, "#") {
			part.Text = ""
		}
		t.add(part.Text)
	}
	t.end()
	return t.finds
}

// code returns what is found in a Go file: in its comments, and with messages in its string literals.
func code(source string, messages bool) [][2]string {
	var t text
	var s scanner.Scanner
	column, file := 0, token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, []byte(source), nil, scanner.ScanComments)
	for {
		pos, tok, literal := s.Scan()
		switch message, err := strconv.Unquote(literal); {
		case tok == token.EOF:
			t.end()
			return t.finds
		case tok == token.COMMENT && !strings.HasPrefix(literal, "//go:"):
			if at := file.Position(pos).Column; at != column { // not the next line of the comment before
				t.end()
				column = at
			}
			t.add(strings.Trim(literal, "/*"))
		case tok == token.STRING && err == nil && messages && strings.Count(message, " ") > 1:
			t.end()
			t.lines, column = []string{message}, 0
		case tok != token.SEMICOLON || literal == ";": // others are the scanner's own
			t.end()
		}
	}
}

// count returns what is found in the checkout, by file: each document, and what else has something.
func count() (map[string][][2]string, error) {
	found := map[string][][2]string{}
	return found, fs.WalkDir(os.DirFS("."), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && skipped.MatchString(d.Name()) {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return err
		}
		source, err := os.ReadFile(path)
		switch filepath.Ext(path) {
		case ".md":
			found[path] = document(string(source))
		case ".go":
			if all := code(string(source), !strings.HasSuffix(path, "_test.go")); len(all) > 0 {
				found[path] = all
			}
		}
		return err
	})
}

func main() {
	found, err := count()
	if err != nil {
		log.Fatalln(err)
	}
	if len(os.Args) > 1 {
		for _, f := range found[os.Args[1]] {
			fmt.Printf("%s: %s\n", f[0], f[1])
		}
		return
	}
	in, own := map[string]int{}, 0
	for _, at := range slices.Sorted(maps.Keys(found)) {
		number := map[string]int{}
		for _, f := range found[at] {
			number[f[0]]++
		}
		fmt.Println(at, len(found[at]), strings.Trim(fmt.Sprint(number), "map[]"))
		if filepath.Ext(at) != ".md" {
			continue
		}
		text, err := os.ReadFile(at)
		if err != nil {
			log.Fatalln(err)
		}
		in[filepath.Dir(at)] += len(strings.Fields(string(text)))
		if ours, _, is := strings.Cut(string(text), "\n## Words of other projects\n"); is {
			own = strings.Count(ours, "\n- **")
		}
	}
	fmt.Println("words by folder:", strings.TrimPrefix(fmt.Sprint(in), "map"), "of our own in the glossary:", own)
}
