// Package docs parses the documents of the project, for tests that run their commands.
//
// The language of a fenced block determines its use: "console" has commands, after "$ ", with their
// output; "sh" has commands without output; blocks in other languages have no commands. A word
// after the language is a file name: the block is the content of that file. A comment
// <!-- test: WORD --> names an action that the test performs at this point.
package docs

import (
	"os"
	"path/filepath"
	"strings"
)

// Part is a part of a document: a block, a note to the test, or other text.
type Part struct {
	Block *Block
	Note  string // name of an action of the test
	Text  string // the source text; for a block, its first line
	Line  int    // number of the first line
}

// Block is a fenced block.
type Block struct {
	Language, Name string
	Lines          []string // including line feeds
	end            string
}

// First returns the first line of the first command, which identifies a block in tests.
func (b *Block) First() string {
	for _, command := range b.Commands() {
		first, _, _ := strings.Cut(command, "\n")
		return first
	}
	return ""
}

// Content returns the text between the fences.
func (b *Block) Content() string { return strings.Join(b.Lines, "") }

// Commands returns the commands of a block: for a console, the text after "$ ". A line that ends
// with a backslash continues in the next one.
func (b *Block) Commands() (commands []string) {
	joined := ""
	for _, line := range b.Lines {
		line = strings.TrimSuffix(line, "\n")
		if b.Language == "console" && joined == "" {
			typed, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			line = typed
		}
		joined += line
		if strings.HasSuffix(line, "\\") {
			joined += "\n"
			continue
		}
		if text := strings.TrimSpace(joined); text != "" && !strings.HasPrefix(text, "#") {
			commands = append(commands, joined)
		}
		joined = ""
	}
	return commands
}

// Parse splits a document into parts. Render is its inverse.
func Parse(text string) (parts []Part) {
	var open *Part
	n := 0
	for line := range strings.Lines(text) {
		n++
		info, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		note, isNote := strings.CutPrefix(strings.TrimSpace(line), "<!-- test: ")
		switch {
		case open != nil && isFence:
			open.Block.end = line
			parts, open = append(parts, *open), nil
		case open != nil:
			open.Block.Lines = append(open.Block.Lines, line)
		case isFence:
			language, name, _ := strings.Cut(info, " ")
			open = &Part{Block: &Block{Language: language, Name: name}, Text: line, Line: n}
		case isNote:
			parts = append(parts, Part{Note: strings.TrimSuffix(note, " -->"), Text: line, Line: n})
		default:
			parts = append(parts, Part{Text: line, Line: n})
		}
	}
	return parts
}

// Render returns the text of a document.
func Render(parts []Part) string {
	var text strings.Builder
	for _, p := range parts {
		text.WriteString(p.Text)
		if p.Block != nil {
			text.WriteString(p.Block.Content() + p.Block.end)
		}
	}
	return text.String()
}

// Find returns the documents of a checkout: the Markdown files, except those in hidden directories,
// testdata, bin and vendor.
func Find(root string) (paths []string, err error) {
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "vendor"):
			return filepath.SkipDir
		case filepath.Ext(name) == ".md":
			relative, err := filepath.Rel(root, path)
			paths = append(paths, relative)
			return err
		}
		return nil
	})
	return paths, err
}
