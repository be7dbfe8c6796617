package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"machine-pivot/test/tools/need"
)

// Check compares a page in man/ with its program. UPDATE_GOLDEN=1 updates the page.
func Check(t *testing.T, name string, root *cobra.Command) {
	t.Helper()
	check(t, name, func(page string) (string, error) { return Update(page, root) })
}

// CheckTerms compares the terms of a page in man/ with the glossary. UPDATE_GOLDEN=1 updates the page.
func CheckTerms(t *testing.T, name string) {
	t.Helper()
	glossary, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	check(t, name, func(page string) (string, error) { return Terms(page, string(glossary)) })
}

func check(t *testing.T, name string, update func(page string) (string, error)) {
	t.Helper()
	path := filepath.Join("../../man", name)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	now, err := update(string(page))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if now != string(page) {
		t.Errorf("man/%s is not what its sources say: UPDATE_GOLDEN=1 go test -run 'TestManual|TestTerms' ./cmd/...", name)
	}
}

// CheckExamples requires that each command has an example, that the command accepts it, and that each flag's value has
// a name.
func CheckExamples(t *testing.T, root *cobra.Command) {
	t.Helper()
	for _, cmd := range Commands(root) {
		if strings.TrimSpace(cmd.Example) == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(flag); slices.Contains([]string{"duration", "int", "string", "strings", "uint"}, value) {
				t.Errorf("--%s of %s names the value by its type, %s: give it a name in its usage", flag.Name, cmd.CommandPath(), value)
			}
		})
		for line := range strings.Lines(cmd.Example) {
			checkExample(t, root, cmd, strings.TrimSpace(line))
		}
	}
}

// ownPart returns the part of an example that runs the program, without the rest of a pipe and
// without redirections.
func ownPart(program, line string) string {
	for part := range strings.SplitSeq(line, "|") {
		part, _, _ = strings.Cut(strings.TrimSpace(part), " >")
		if part, _, _ = strings.Cut(part, " <"); strings.HasPrefix(part, program+" ") {
			return part
		}
	}
	return "''" // the example does not run the program
}

func checkExample(t *testing.T, root, cmd *cobra.Command, line string) {
	t.Helper()
	command := ownPart(root.Name(), line)
	split := exec.Command("sh", "-c", `printf '%s\n' `+command)
	split.Dir = t.TempDir() // for what an example redirects in a way that ownPart does not know
	words, err := split.Output()
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSuffix(string(words), "\n"), "\n")
	found, rest, err := root.Find(args[1:])
	if args[0] != root.Name() || err != nil || found != cmd {
		t.Errorf("the example %q is not of %s", line, cmd.CommandPath())
		return
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("the example %q: %v", line, err)
		return
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		t.Errorf("the example %q: %v", line, err)
	}
}

// Lint checks a page with mandoc. It ignores references to pages that are not installed, and
// messages about the operating system, which packages set.
func Lint(t *testing.T, path string) {
	t.Helper()
	need.Program(t, "mandoc")
	out, _ := exec.Command("mandoc", "-Tlint", "-Wstyle", path).CombinedOutput() // its output says enough
	ignored := []string{"referenced manual not found", "outdated mandoc.db", "operating system explicitly specified", "Mdocdate missing", "RCS id missing"}
	for line := range strings.Lines(string(out)) {
		if !slices.ContainsFunc(ignored, func(text string) bool { return strings.Contains(line, text) }) {
			t.Errorf("%s", strings.TrimSpace(line))
		}
	}
}
