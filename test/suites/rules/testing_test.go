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

// e2e is the prefix of the names of tests in test/suites/e2e.
const e2e = "test/suites/e2e."

// The headings of the tables in docs/testing.md.
const (
	ofTest    = "### make test"
	ofNightly = "### make nightly"
)

// TestTestingTimes checks that the tables of docs/testing.md name existing tests, and each case of
// test/suites/e2e once, under the command that runs it: "make nightly" runs the tests that NIGHTLY in the
// Makefile names, "make test" the rest.
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

// nightlyPackages returns the packages in which "make nightly" runs tests.
func nightlyPackages() []string {
	return []string{"test/suites/e2e", "test/suites/rules", "test/suites/packaging", "test/worlds/vm"}
}

// nightlyTests returns the Makefile's NIGHTLY, which matches the tests that "make nightly" runs and
// "make test" skips. It checks that each alternative names a test of the right packages.
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
	for name := range tests { // "make test" skips it in all packages, "make nightly" runs it only in these
		pkg, function, _ := strings.Cut(name, ".")
		if nightly.MatchString(function) && !slices.Contains(nightlyPackages(), pkg) {
			t.Errorf("%s is run by neither \"make test\" nor \"make nightly\": its name is in NIGHTLY; rename it", name)
		}
	}
	return nightly
}

// tableOf returns the heading under which the time of a test, or of a case, belongs.
func tableOf(name string, nightly *regexp.Regexp) string {
	_, test, _ := strings.Cut(name, ".")
	if function, _, _ := strings.Cut(test, "/"); nightly.MatchString(function) {
		return ofNightly
	}
	return ofTest
}

// section returns the part of a document from a heading to the next one; "" if there is no such
// heading.
func section(text, heading string) string {
	_, after, _ := strings.Cut("\n"+text, "\n"+heading+"\n")
	within, _, _ := strings.Cut(after, "\n#")
	return within
}

// timeRows returns the tests in a text's tables, in the form that test/tools/summary prints or with
// "new" instead of a time.
func timeRows(text string) (names []string) {
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:\\d+|new) \\|$")
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// e2eCases returns the cases of the table-driven tests in test/suites/e2e, by their names in package testing.
func e2eCases(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "test/suites/e2e/*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of test/suites/e2e: %v", err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tableCases(parsed)...)
	}
	if len(names) < 10 {
		t.Fatalf("only the cases %q in test/suites/e2e", names)
	}
	return names
}

// tableCases returns the cases of a file's tests: the strings that are the first field of the elements
// in a composite literal.
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

// firstText returns the string that is the first field of an element in a composite literal, or "".
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

// TestTableCases checks that the cases in a source file are found.
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

// TestTimeRows checks timeRows under a heading, and tableOf.
func TestTimeRows(t *testing.T) {
	const text = ofTest + "\n| test | seconds |\n|---|---:|\n| `test/suites/e2e.TestA/one_case` | 8 |\n| `x` | later |\n\n" +
		ofNightly + "\n| `test/suites/e2e.TestB` | new |\n"
	nightly := regexp.MustCompile("^(TestB)$")
	for heading, want := range map[string]string{ofTest: "test/suites/e2e.TestA/one_case", ofNightly: "test/suites/e2e.TestB"} {
		if rows := timeRows(section(text, heading)); !slices.Equal(rows, []string{want}) {
			t.Errorf("rows under %q: %q, want %q", heading, rows, want)
		}
		if got := tableOf(want, nightly); got != heading {
			t.Errorf("%s belongs under %q, want %q", want, got, heading)
		}
	}
	if tableOf("test/suites/e2e.TestBoth/a_case", nightly) != ofTest || tableOf("test/suites/e2e.TestB/a_case", nightly) != ofNightly {
		t.Error("a case belongs where its test does")
	}
	if rows := section(text, "### other"); rows != "" {
		t.Errorf("under a heading that is not there: %q", rows)
	}
}
