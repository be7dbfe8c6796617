package rules

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// TestRulesHaveFunctions checks that each function or type in the table "Rules that hold in one place" exists and has a
// comment, which states the rule.
func TestRulesHaveFunctions(t *testing.T) {
	commented := map[string]bool{}
	name := func(f file, names ...string) string {
		return f.pkg[strings.LastIndex(f.pkg, "/")+1:] + "." + strings.Join(names, ".")
	}
	nodes(t, func(f file, d *ast.FuncDecl) {
		names := []string{d.Name.Name}
		if d.Recv != nil {
			of := d.Recv.List[0].Type
			if pointer, is := of.(*ast.StarExpr); is {
				of = pointer.X
			}
			if of, is := of.(*ast.Ident); is {
				names = []string{of.Name, d.Name.Name}
			}
		}
		commented[name(f, names...)] = d.Doc != nil
	})
	nodes(t, func(f file, d *ast.GenDecl) {
		for _, s := range d.Specs {
			if s, is := s.(*ast.TypeSpec); is {
				commented[name(f, s.Name.Name)] = d.Doc != nil || s.Doc != nil
			}
		}
	})
	_, text, _ := strings.Cut(readText(t, "docs/dev/architecture.md"), "\n## Rules that hold in one place\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]+) \|$`).FindAllStringSubmatch(text, -1)
	if len(rows) < 40 {
		t.Fatalf("%d rules", len(rows))
	}
	for _, row := range rows[1:] {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if !commented[m[1]] {
				t.Errorf("there is no %s with a comment", m[1])
			}
		}
		if !strings.Contains(row[1], "`") {
			t.Errorf("no function holds %s", row[0])
		}
	}
}
