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

// The tables of docs/testing.md, by the headings that they stand under.
const (
	ofTest    = "### make test"
	ofNightly = "### make nightly"
)

// TestTestingTimes checks that the tables of docs/testing.md name tests that are there,
// and each case of test/e2e once, under the command that runs it: what NIGHTLY in the
// Makefile names is run by "make nightly", the rest by "make test".
func TestTestingTimes(t *testing.T) {
	nightly := nightlyTests(t)
	data, err := os.ReadFile(filepath.Join(root, "docs/testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	booting := e2eCases(t)
	wanted := map[string][]string{}
	for _, name := range booting {
		table := tableOf(name, nightly)
		wanted[table] = append(wanted[table], name)
	}
	tests, _ := testFunctions(t)
	for _, table := range []string{ofTest, ofNightly} {
		rows := timeRows(section(string(data), table))
		for i, name := range rows {
			pkg, test, _ := strings.Cut(name, ".")
			function, _, isCase := strings.Cut(test, "/")
			switch {
			case slices.Contains(rows[:i], name):
				t.Errorf("docs/testing.md names %s twice", name)
			case !tests[pkg+"."+function]:
				t.Errorf("docs/testing.md names %s, which is not there", name)
			case isCase && strings.HasPrefix(name, e2e) && !slices.Contains(booting, name):
				t.Errorf("docs/testing.md names %s, which is no case", name)
			case tableOf(name, nightly) != table:
				t.Errorf("docs/testing.md names %s under %q, and %q runs it", name, table, tableOf(name, nightly))
			}
		}
		for _, name := range wanted[table] {
			if !slices.Contains(rows, name) {
				t.Errorf("docs/testing.md does not say under %q how long %s takes", table, name)
			}
		}
	}
}

// nightlyPackages are those that "make nightly" runs tests of.
func nightlyPackages() []string {
	return []string{"test/e2e", "test/rules", "test/packaging", "test/vm"}
}

// nightlyTests matches the names of the tests that "make nightly" runs and "make test" leaves
// out, as the Makefile declares them. Each alternative of it must be a test.
func nightlyTests(t *testing.T) *regexp.Regexp {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^NIGHTLY = \^\(([\w|]+)\)\$\$$`).FindStringSubmatch(string(makefile))
	if declared == nil {
		t.Fatal("the Makefile has no NIGHTLY that is a list of tests")
	}
	tests, _ := testFunctions(t)
	for name := range strings.SplitSeq(declared[1], "|") {
		if !slices.ContainsFunc(nightlyPackages(), func(pkg string) bool { return tests[pkg+"."+name] }) {
			t.Errorf("NIGHTLY names %s, which none of %s has", name, nightlyPackages())
		}
	}
	nightly := regexp.MustCompile("^(" + declared[1] + ")$")
	for name := range tests { // "make test" leaves it out wherever it is, "make nightly" runs it only there
		pkg, function, _ := strings.Cut(name, ".")
		if nightly.MatchString(function) && !slices.Contains(nightlyPackages(), pkg) {
			t.Errorf("%s is run by neither \"make test\" nor \"make nightly\": its name is in NIGHTLY; rename it", name)
		}
	}
	return nightly
}

// tableOf is the heading under which the time of a test, or of a case of one, belongs.
func tableOf(name string, nightly *regexp.Regexp) string {
	_, test, _ := strings.Cut(name, ".")
	if function, _, _ := strings.Cut(test, "/"); nightly.MatchString(function) {
		return ofNightly
	}
	return ofTest
}

// section is the part of a document under a heading, to the next one; "" if it has none.
func section(text, heading string) string {
	_, after, _ := strings.Cut("\n"+text, "\n"+heading+"\n")
	within, _, _ := strings.Cut(after, "\n#")
	return within
}

// timeRows are the tests in the tables of a text that "summary" has printed, or that are
// new in it.
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
}

// TestTimeRows finds the rows under a heading, and which heading a test belongs under.
func TestTimeRows(t *testing.T) {
	const text = ofTest + "\n| test | seconds |\n|---|---:|\n| `test/e2e.TestA/one_case` | 8 |\n| `x` | later |\n\n" +
		ofNightly + "\n| `test/e2e.TestB` | new |\n"
	nightly := regexp.MustCompile("^(TestB)$")
	for heading, want := range map[string]string{ofTest: "test/e2e.TestA/one_case", ofNightly: "test/e2e.TestB"} {
		if rows := timeRows(section(text, heading)); !slices.Equal(rows, []string{want}) {
			t.Errorf("rows under %q: %q, want %q", heading, rows, want)
		}
		if got := tableOf(want, nightly); got != heading {
			t.Errorf("%s belongs under %q, want %q", want, got, heading)
		}
	}
	if tableOf("test/e2e.TestBoth/a_case", nightly) != ofTest || tableOf("test/e2e.TestB/a_case", nightly) != ofNightly {
		t.Error("a case belongs where its test does")
	}
	if rows := section(text, "### other"); rows != "" {
		t.Errorf("under a heading that is not there: %q", rows)
	}
}
