package rules

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// TestRulesHaveFunctions checks that each function or type in the tables of functions of docs/dev/architecture.md exists and
// has a comment, which states the rule of the row.
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
	rows := regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]+) \|$`)
	var all [][]string
	for _, table := range regexp.MustCompile(`(?m)^\| [^|]+ \| function \|\n\|---\|---\|\n((?:\|.*\n)+)`).FindAllStringSubmatch(readText(t, "docs/dev/architecture.md"), -1) {
		all = append(all, rows.FindAllStringSubmatch(table[1], -1)...)
	}
	if len(all) < 47 {
		t.Fatalf("%d rules", len(all))
	}
	for _, row := range all {
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
