package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// e2e begins the names of the tests of test/e2e.
const e2e = "test/e2e."

// TestTestingTimes checks that the table of docs/testing.md names tests that are there,
// and each test of test/e2e that boots machines, with its cases.
func TestTestingTimes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := timeRows(string(data))
	tests, _ := testFunctions(t)
	booting := e2eCases(t)
	for _, name := range rows {
		pkg, test, _ := strings.Cut(name, ".")
		function, _, isCase := strings.Cut(test, "/")
		if !tests[pkg+"."+function] {
			t.Errorf("docs/testing.md names %s, which is not there", name)
		}
		if isCase && strings.HasPrefix(name, e2e) && !slices.Contains(booting, name) {
			t.Errorf("docs/testing.md names %s, which is no case", name)
		}
	}
	for _, name := range booting {
		if !slices.Contains(rows, name) {
			t.Errorf("docs/testing.md does not say how long %s takes", name)
		}
	}
}

// timeRows are the tests in the tables of a document that "summary" has printed, or
// that are new in it.
func timeRows(text string) (names []string) {
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:\\d+|new) \\|$")
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// e2eCases are the cases of the tests of test/e2e that have a table of them, by the
// names that the testing package gives them.
func e2eCases(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "test/e2e/*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of test/e2e: %v", err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tableCases(parsed)...)
	}
	if len(names) < 10 {
		t.Fatalf("only the cases %q in test/e2e", names)
	}
	return names
}

// tableCases are the cases of a file's tests: the texts that begin the elements of a
// list of structures.
func tableCases(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "Test") {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			list, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			for _, element := range list.Elts {
				if name := firstText(element); name != "" {
					names = append(names, e2e+f.Name.Name+"/"+strings.ReplaceAll(name, " ", "_"))
				}
			}
			return false
		})
	}
	return names
}

// firstText is the text that a structure in a list begins with; "" if it does not.
func firstText(element ast.Expr) string {
	c, ok := element.(*ast.CompositeLit)
	if !ok || c.Type != nil || len(c.Elts) == 0 {
		return ""
	}
	first, ok := c.Elts[0].(*ast.BasicLit)
	if !ok || first.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(first.Value)
	if err != nil {
		return ""
	}
	return text
}

// TestTableCases finds the cases in a source.
func TestTableCases(t *testing.T) {
	const source = `package p
func TestA(t *testing.T) {
	for _, c := range []struct{ name string; run func() }{{"one case", one}, {"two", two}} { c.run() }
	run(t, []aCase{{"three", Spec{Suite: "x"}, f("y")}})
}
func helper() { _ = []aCase{{"four", nil}} }
`
	file, err := parser.ParseFile(token.NewFileSet(), "a.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{e2e + "TestA/one_case", e2e + "TestA/two", e2e + "TestA/three"}
	if got := tableCases(file); !reflect.DeepEqual(got, want) {
		t.Errorf("cases %q, want %q", got, want)
	}
	rows := timeRows("| test | seconds |\n|---|---:|\n| `test/e2e.TestA/one_case` | 8 |\n| `x` | later |\n")
	if !slices.Equal(rows, want[:1]) {
		t.Errorf("rows %q", rows)
	}
}
