package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/suites/booted"
	"machine-pivot/test/suites/docs"
	"machine-pivot/test/tools/script"
)

const root = "../../.." // of the checkout

func TestMain(m *testing.M) {
	if os.Getenv(booted.Env) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "cannot enter the machine:", booted.Shell())
	os.Exit(125)
}

// TestDocuments (P76) runs the commands of the documents, except those in notRun. Each command of a "console" block
// must print the output that follows it, and each of an "sh" block must succeed. A block with a file name is written to
// that file. UPDATE_GOLDEN=1 updates the output in the documents.
func TestDocuments(t *testing.T) {
	paths, err := docs.Find(root)
	if err != nil || len(paths) < 20 {
		t.Fatalf("documents %q, %v", paths, err)
	}
	bin := script.Programs(t)
	excused := map[string]bool{}
	for _, path := range paths {
		parts := docs.Parse(read(t, path))
		if runs(path, parts, excused) {
			t.Run(strings.ReplaceAll(path, "/", " "), func(t *testing.T) { play(t, path, parts, bin) })
		}
	}
	for name := range notRun {
		if !excused[name] {
			t.Errorf("there is a reason not to run %q, which is in no document", name)
		}
	}
}

// runs reports whether a document has something to run. It adds the blocks that are not run to
// excused.
func runs(path string, parts []docs.Part, excused map[string]bool) (something bool) {
	for _, p := range parts {
		if p.Block == nil || len(p.Block.Commands()) == 0 || !isTyped(p.Block) {
			continue
		}
		name := path + ": " + p.Block.First()
		if _, ok := notRun[name]; ok {
			excused[name] = true
		} else {
			something = true
		}
	}
	return something
}

func isTyped(b *docs.Block) bool {
	return b.Language == "console" || b.Language == "sh" && b.Name == ""
}

func play(t *testing.T, path string, parts []docs.Part, bin string) {
	t.Helper()
	s := newStage(t, path, bin)
	for _, p := range parts {
		at := fmt.Sprintf("%s:%d", path, p.Line)
		switch b := p.Block; {
		case p.Note != "":
			act, ok := s.notes[p.Note]
			if !ok {
				t.Fatalf("%s: nothing is known of the note %q", at, p.Note)
			}
			act()
		case b == nil:
		case b.Name != "":
			s.put(b.Name, b.Content())
		case !isTyped(b) || notRun[path+": "+b.First()].why != "":
		case b.Language == "sh":
			for _, command := range b.Commands() {
				if out, status := s.run(command); status != 0 {
					t.Errorf("%s: %s: exit status %d\n%s", at, command, status, out)
				}
			}
		default:
			b.Lines = session(s, b)
		}
	}
	now := docs.Render(parts)
	if text := read(t, path); now == text {
		return
	}
	if os.Getenv("UPDATE_GOLDEN") == "" {
		t.Errorf("%s is not what happens; that is\n%s", path, now)
	} else if err := os.WriteFile(filepath.Join(root, path), []byte(now), 0o644); err != nil {
		t.Fatal(err)
	}
}

// session runs the commands of a block and returns its lines with the actual output. Output that
// differs only in volatile parts is left unchanged.
func session(s *stage, b *docs.Block) (lines []string) {
	var shown []string // for each command, the text after its first line
	for _, line := range b.Lines {
		if strings.HasPrefix(line, "$ ") {
			shown = append(shown, "")
		} else if len(shown) > 0 {
			shown[len(shown)-1] += line
		}
	}
	commands := b.Commands()
	if len(commands) != len(shown) {
		s.t.Fatalf("%d commands in %q", len(shown), b.Content())
	}
	for i, command := range commands {
		out, _ := s.run(command) // the output shows failures
		_, more, _ := strings.Cut(command, "\n")
		before, ok := strings.CutPrefix(shown[i], more)
		if more != "" && ok {
			before = strings.TrimPrefix(before, "\n")
		}
		if s.normalized(before) == s.normalized(out) {
			out = before
		}
		lines = append(lines, "$ "+command+"\n", out)
	}
	return lines
}

// normalized replaces the parts of a text that vary between runs: times, numbers of bytes, and
// checksums that have no name in the document. It leaves out what pivot says only because the images here have no programs.
func (s *stage) normalized(text string) string {
	for _, differs := range [][2]string{
		{`\b[0-9.]+ s\b`, "T s"}, {`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?`, "DATE"}, {`\b[0-9.]+ k?B\b`, "N bytes"},
		{`(?m)^pivot: pull: whether this machine can start the new system is not judged in full: it has no .*\n`, ""},
	} {
		text = regexp.MustCompile(differs[0]).ReplaceAllString(text, differs[1])
	}
	return regexp.MustCompile(`(sha256:)?\b[0-9a-f]{64}\b`).ReplaceAllStringFunc(text, func(sum string) string {
		if _, ok := s.names[sum]; ok {
			return sum
		}
		return "CHECKSUM"
	})
}

// TestBlocks: each block has a known language, and all commands are in blocks that are run.
func TestBlocks(t *testing.T) {
	paths, err := docs.Find(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		for _, p := range docs.Parse(read(t, path)) {
			if p.Block == nil {
				continue
			}
			for _, problem := range wrong(p.Block) {
				t.Errorf("%s:%d: %s", path, p.Line, problem)
			}
		}
	}
}

// languages is the languages of the documents' blocks. Plain text is "text".
var languages = []string{"console", "sh", "text", "mermaid", "yaml", "json", "toml", "ini", "dockerfile", "kickstart"}

// typed matches lines that look like a command.
var typed = regexp.MustCompile(`^(\$ |# )?((sudo )?(pivot|pivotctl|make|go|git|ostree|rpm-ostree|semodule|systemctl|journalctl|curl|oc|skopeo|podman|ssh) \S|\$ )`)

func wrong(b *docs.Block) (problems []string) {
	if !slices.Contains(languages, b.Language) {
		return []string{fmt.Sprintf("the block's language is %q, not one of %q", b.Language, languages)}
	}
	if isTyped(b) && len(b.Commands()) == 0 {
		problems = append(problems, "a block of "+b.Language+" without a command: it shows nothing that a test runs")
	}
	for _, line := range b.Lines {
		if b.Language == "text" && typed.MatchString(line) {
			problems = append(problems, fmt.Sprintf("%q looks like a command: put it into a block sh or console, which is run", strings.TrimSpace(line)))
		}
	}
	return problems
}

// TestWrongBlocks: mistakes that would hide a command from the test are found.
func TestWrongBlocks(t *testing.T) {
	for text, wanted := range map[string]int{
		"```\nx\n```\n": 1, "```bash\npivot status\n```\n": 1, "```text\n$ pivot status\n```\n": 1, "```text\npivot status\n```\n": 1,
		"```console\npivot status\n```\n": 1, "```sh\n# nothing\n```\n": 1,
		"```console\n$ pivot status\nidle\n```\n": 0, "```sh\npivot status\n```\n": 0, "```text\npivot: read\n```\n": 0, "```sh /etc/x\n#!/bin/sh\n```\n": 0,
	} {
		parts := docs.Parse(text)
		if len(parts) != 1 || parts[0].Block == nil || docs.Render(parts) != text {
			t.Fatalf("%q is read as %+v", text, parts)
		}
		if problems := wrong(parts[0].Block); len(problems) != wanted {
			t.Errorf("%q: %q, want %d", text, problems, wanted)
		}
	}
	const several = "```console\n$ a \\\n  b\nout\n$ c\n```\n"
	if got := docs.Parse(several)[0].Block.Commands(); !slices.Equal(got, []string{"a \\\n  b", "c"}) {
		t.Errorf("commands %q", got)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
