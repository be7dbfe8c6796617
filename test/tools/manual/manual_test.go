package manual_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"machine-pivot/test/tools/manual"
)

// TestPages (P61): mandoc finds nothing wrong with the pages, nor with those of single commands.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../../man/*.[1-8]")
	if err != nil || len(pages) < 5 {
		t.Fatalf("pages %q, %v", pages, err)
	}
	dir := t.TempDir()
	for program, least := range map[string]int{"pivot.8": 10, "pivotctl.1": 10, "pivot-agent.8": 1, "pivot-fleet.8": 1} {
		text, err := os.ReadFile(filepath.Join("../../../man", program))
		if err != nil {
			t.Fatal(err)
		}
		of, err := manual.Pages(string(text))
		if err != nil || len(of) < least {
			t.Fatalf("%s has the commands %v: %v", program, of, err)
		}
		for name, text := range of {
			page := filepath.Join(dir, name)
			if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			pages = append(pages, page)
		}
	}
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) { manual.Lint(t, page) })
	}
}

// TestPagesOfCommands: each command's page has all that a page should have, and refers to the whole.
func TestPagesOfCommands(t *testing.T) {
	root := &cobra.Command{Use: "x"}
	parent := &cobra.Command{Use: "of-many"}
	cmd := &cobra.Command{Use: "do --role ROLE FILE…", Short: "Do it: at once. And again", Example: "  x of-many do -f a", Run: func(*cobra.Command, []string) {}}
	cmd.Flags().StringP("from-a", "f", "1", "take `WHAT`")
	parent.AddCommand(cmd)
	root.AddCommand(parent, &cobra.Command{Use: "rest", Short: "SVG is drawn.", Example: "  x rest", Run: func(*cobra.Command, []string) {}})
	_, err := manual.Update("", root)
	_, place, _ := strings.Cut(err.Error(), "the lines\n")
	whole := ".Dd May 1, 2026\n.Dt X 8\n.Os\n.Sh NAME\n" + place + ".Sh EXIT STATUS\n0\n.Sh SEE ALSO\n.Xr a 8 ,\n.Xr y 1\n"
	page, err := manual.Update(whole, root)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := manual.Pages(page)
	if err != nil || len(pages) != 2 {
		t.Fatalf("%v: %v", pages, err)
	}
	for _, want := range []string{
		".Dd May 1, 2026\n.Dt X-OF-MANY-DO 8\n.Os\n", ".Nm x-of-many-do\n.Nd do it\n", ".Nm x Cm of\\-many do\n.Op Ar flags\n.No \\-\\-role ROLE FILE\\[u2026]\n",
		".Sh DESCRIPTION\nDo it: at once.\nAnd again.\n.Sh OPTIONS\n.Bl -tag", ".Sh EXIT STATUS\n0\n.Sh EXAMPLES\n.Bd", "x of\\-many do \\-f a\n", ".Sh SEE ALSO\n.Xr y 1 ,\n.Xr a 8 ,\n.Xr x 8\n",
	} {
		if !strings.Contains(pages["x-of-many-do.8"], want) {
			t.Errorf("no %q in\n%s", want, pages["x-of-many-do.8"])
		}
	}
	if rest := pages["x-rest.8"]; !strings.Contains(rest, ".Nd SVG is drawn\n") || strings.Contains(rest, "OPTIONS") || strings.Contains(rest, "flags") {
		t.Errorf("without flags:\n%s", rest)
	}
	for _, missing := range []string{".Dt X 8\n", ".Sh EXIT STATUS\n", ".Sh SEE ALSO\n", ".Pp\nFor example:\n"} {
		if got, err := manual.Pages(strings.Replace(page, missing, "", 1)); err == nil {
			t.Errorf("without %q: %v", missing, got)
		}
	}
}

// TestUpdate: texts of a program are escaped for the formatter.
func TestUpdate(t *testing.T) {
	root := &cobra.Command{Use: "x"}
	cmd := &cobra.Command{Use: "do FILE…", Short: ".hidden 'a' \\ \"b\"", Example: "  x do -f a", Run: func(*cobra.Command, []string) {}}
	cmd.Flags().StringP("from-a", "f", "1", "take `WHAT`")
	root.AddCommand(cmd, &cobra.Command{Use: "secret", Hidden: true})
	place, err := manual.Update("a\n", root)
	if err == nil {
		t.Fatalf("a page without a place became %q", place)
	}
	_, place, _ = strings.Cut(err.Error(), "the lines\n")
	got, err := manual.Update("a\n"+place+"z\n", root)
	for _, want := range []string{
		".Ss do FILE\\[u2026]\\&\n", "\\&.hidden \\[aq]a\\[aq] \\e \\[dq]b\\[dq].\n", ".It Fl f , Fl \\-from\\-a Ar WHAT\nTake WHAT (default: 1).\n", "x do \\-f a\n",
	} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("no %q in %v\n%s", want, err, got)
		}
	}
	if again, err := manual.Update(got, root); err != nil || again != got || strings.Contains(got, "secret") {
		t.Errorf("%v\n%s", err, again)
	}
}

// TestTerms: the page has the words of this project, and no others.
func TestTerms(t *testing.T) {
	glossary := "# G\n\n- **drift**: a `x` *is*, at\n  once. And more.\n- **step aside**: to go.\n\n## Words of other projects\n- **BLS**: b.\n"
	_, err := manual.Terms("a\n", glossary)
	if err == nil {
		t.Fatal("there is no place, and it writes nothing")
	}
	_, place, _ := strings.Cut(err.Error(), "the lines\n")
	got, err := manual.Terms("a\n"+place+"z\n", glossary)
	if want := ".It drift\nA x is, at once.\nAnd more.\n.It step aside\nTo go.\n.El\n"; err != nil || !strings.Contains(got, want) || strings.Contains(got, "BLS") {
		t.Errorf("%v\n%s", err, got)
	}
	if again, err := manual.Terms(got, glossary); err != nil || again != got {
		t.Errorf("%v\n%s", err, again)
	}
	for _, bad := range []string{"", "\n## Words of other projects\n", "\n- **drift**, without a meaning\n\n## Words of other projects\n"} {
		if got, err := manual.Terms(got, bad); err == nil {
			t.Errorf("from %q: %s", bad, got)
		}
	}
}
