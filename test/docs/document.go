// Package docs reads the documents of the project, so that tests can run what they show.
//
// The language of a fenced block says what it is: "console" is what somebody types, after
// "$ ", and what is printed; "sh" is what somebody types, without what it prints; the
// others are no commands. A word behind the language is the name of the file that the
// block is. A comment <!-- test: WORD --> names something that a test does at this place.
package docs

import (
	"os"
	"path/filepath"
	"strings"
)

// Part is a part of a document: a block, a note to the test, or other text, which is Text.
type Part struct {
	Block *Block
	Note  string // of a comment for the test
	Text  string // as it stands in the document; of a block: its first line
	Line  int    // the number of the first line
}

// Block is what stands between two fences.
type Block struct {
	Language, Name string
	Lines          []string // with their line feeds
	end            string
}

// First is the first line of the first command, which names a block in tests.
func (b *Block) First() string {
	for _, command := range b.Commands() {
		first, _, _ := strings.Cut(command, "\n")
		return first
	}
	return ""
}

// Content is what is between the fences.
func (b *Block) Content() string { return strings.Join(b.Lines, "") }

// Commands are what is typed in a block: of a console, what is behind "$ ". A line that
// ends with a backslash goes on in the next one.
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

// Parse takes a document apart. Render puts it together.
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

// Render is the text of a document.
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

// Find returns the documents of a checkout: the Markdown files in its directories, without
// hidden ones and test data.
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
