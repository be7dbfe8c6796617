package manual_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"machine-pivot/test/manual"
)

// TestPages (P61): mandoc finds nothing wrong with the pages.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../man/*.[1-8]")
	if err != nil || len(pages) < 5 {
		t.Fatalf("pages %q, %v", pages, err)
	}
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) { manual.Lint(t, page) })
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
