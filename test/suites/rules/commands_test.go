package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/suites/docs"
)

// TestCommandsOfTests checks that each command "go test" in a document names packages that exist, and tests,
// benchmarks and cases that at least one of these packages has.
func TestCommandsOfTests(t *testing.T) {
	texts := textsOfTests(t)
	n := 0
	for _, path := range documents(t) {
		for _, command := range goTests(readText(t, path)) {
			n++
			if problem := command.problem(texts); problem != "" {
				t.Errorf("%s: go test %s: %s", path, strings.Join(command, " "), problem)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d commands", n)
	}
	for text, want := range map[string]string{
		"`go test ./nothing`":                                           "./nothing is no package",
		"`go test -run TestNothing ./test/suites/rules`":                "nothing matches -run TestNothing",
		"`go test -run 'TestLinks|TestAbsent'\n ./test/suites/rules`":   "nothing matches -run TestAbsent",
		"`go test -run 'Links/absent' ./test/suites/rules`":             "no case has absent",
		"`go test -bench . ./test/suites/rules`":                        "nothing matches -bench .",
		"```sh\nPIVOT_X=y go test \\\n -run TestX ./pivot && x\n```\n":  "nothing matches -run TestX",
		"`go test -run '^$' -bench Program -benchtime 40x ./cmd/pivot`": "",
	} {
		found := goTests(text)
		if len(found) != 1 {
			t.Errorf("%s: found %q", text, found)
		} else if got := found[0].problem(texts); got != want {
			t.Errorf("%s: problem %q, want %q", text, got, want)
		}
	}
}

// TestNamedTests checks that each test that a document names exists: in the package that it names, if it names one.
func TestNamedTests(t *testing.T) {
	tests := testFunctions(t)
	anywhere := map[string]bool{}
	for name := range tests {
		_, function, _ := strings.Cut(name, ".")
		anywhere[function] = true
	}
	named := regexp.MustCompile("`(?:([a-z0-9/]+)\\.)?(Test[A-Z]\\w+)[`/]")
	n := 0
	for _, path := range documents(t) {
		for _, m := range named.FindAllStringSubmatch(readText(t, path), -1) {
			n++
			if m[1] == "" && !anywhere[m[2]] || m[1] != "" && !tests[m[1]+"."+m[2]] {
				t.Errorf("%s names %s, which is not there", path, strings.Trim(m[0], "`/"))
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d names", n)
	}
}

// textsOfTests returns the texts of the test files of each package.
func textsOfTests(t *testing.T) (all map[string]string) {
	t.Helper()
	all = map[string]string{}
	for _, p := range packages(t) {
		directory := "." + strings.TrimPrefix(p.ImportPath, module)
		all[directory] = ""
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			all[directory] += readText(t, directory+"/"+name)
		}
	}
	return all
}

// goTest are the arguments of a command "go test".
type goTest []string

// goTests returns the commands in a document's code.
func goTests(text string) (commands []goTest) {
	var code []string
	var prose strings.Builder
	for _, part := range docs.Parse(text) {
		if part.Block != nil {
			code = append(code, part.Block.Commands()...)
			prose.WriteString("\n")
			continue
		}
		prose.WriteString(part.Text)
	}
	for _, inline := range regexp.MustCompile("`[^`]+`").FindAllString(prose.String(), -1) {
		code = append(code, strings.Trim(inline, "`"))
	}
	word := regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	for _, c := range code {
		for _, after := range strings.Split(c, "go test ")[1:] {
			after, _, _ = strings.Cut(strings.ReplaceAll(after, `\|`, "|"), "&&")
			var command goTest
			for _, w := range word.FindAllString(after, -1) {
				command = append(command, strings.Trim(w, `'"`))
			}
			commands = append(commands, command)
		}
	}
	return commands
}

// flag returns the value of a flag; "" if it is not given.
func (c goTest) flag(name string) string {
	if i := slices.Index(c, name); i >= 0 && i+1 < len(c) {
		return c[i+1]
	}
	return ""
}

// problem returns what a command names that does not exist; "" if there is nothing.
func (c goTest) problem(texts map[string]string) string {
	var text strings.Builder
	for _, word := range c {
		if !strings.HasPrefix(word, "./") {
			continue
		}
		tests, there := texts[word]
		if !there {
			return word + " is no package"
		}
		text.WriteString(tests)
	}
	if problem := unmatched("-run", "Test", c.flag("-run"), text.String()); problem != "" {
		return problem
	}
	return unmatched("-bench", "Benchmark", c.flag("-bench"), text.String())
}

// unmatched returns an alternative in the pattern of a flag that matches no function of its kind, or a case that has
// no name in the tests. The patterns ^$ and none select nothing on purpose.
func unmatched(flag, kind, pattern, text string) string {
	functions := regexp.MustCompile(`(?m)^func (`+kind+`\w+)\(`).FindAllStringSubmatch(text, -1)
	pattern, name, _ := strings.Cut(pattern, "/")
	for alternative := range strings.SplitSeq(pattern, "|") {
		if slices.Contains([]string{"", "^$", "none"}, alternative) {
			continue
		}
		matches, err := regexp.Compile(alternative)
		if err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(functions, func(f []string) bool { return matches.MatchString(f[1]) }) {
			return fmt.Sprintf("nothing matches %s %s", flag, alternative)
		}
	}
	if name != "" && !strings.Contains(text, `"`+name) {
		return "no case has " + name
	}
	return ""
}
