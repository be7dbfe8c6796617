package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxDecision is the maximum length of each line of a decision, in bytes. Longer explanations belong
// in another document.
const maxDecision = 420

// TestDecisions checks the form of docs/decisions.md: an index of its subjects, and for each decision
// a heading with one line each of context, decision and consequence.
func TestDecisions(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/decisions.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range decisionProblems(string(data)) {
		t.Errorf("docs/decisions.md: %s", p)
	}
}

// decisionProblems returns the problems in the form of a document of decisions.
func decisionProblems(text string) (problems []string) {
	var index, subjects, titles []string
	title, lines := "", []string(nil) // of the current decision
	end := func() {
		if title != "" {
			problems = append(problems, decisionLines(title, lines)...)
		}
		title, lines = "", nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "### "):
			end()
			title = strings.TrimPrefix(line, "### ")
			if len(subjects) == 0 {
				problems = append(problems, title+" stands under no subject")
			}
			if slices.Contains(titles, title) {
				problems = append(problems, title+" is there twice")
			}
			titles = append(titles, title)
		case strings.HasPrefix(line, "## "):
			end()
			subjects = append(subjects, strings.TrimPrefix(line, "## "))
		case title != "" && line != "":
			lines = append(lines, line)
		case strings.HasPrefix(line, "- ["):
			index = append(index, line)
		case len(subjects) > 0 && line != "":
			problems = append(problems, fmt.Sprintf("%q belongs to no decision", line))
		}
	}
	end()
	var want []string
	for _, s := range subjects {
		want = append(want, fmt.Sprintf("- [%s](#%s)", s, anchor(s)))
	}
	if !slices.Equal(index, want) {
		problems = append(problems, fmt.Sprintf("its index is %q, want %q", index, want))
	}
	return problems
}

// decisionLines returns the problems of the lines below a decision's heading.
func decisionLines(title string, lines []string) (problems []string) {
	parts := []string{"- **Context**: ", "- **Decision**: ", "- **Consequence**: "}
	if len(lines) != len(parts) {
		return []string{fmt.Sprintf("%s has %d lines, want one each of context, decision and consequence", title, len(lines))}
	}
	for i, line := range lines {
		switch {
		case !strings.HasPrefix(line, parts[i]) || line == parts[i]:
			problems = append(problems, fmt.Sprintf("%s: a line does not begin with %q: %s", title, parts[i], line))
		case len(line) > maxDecision:
			problems = append(problems, fmt.Sprintf("%s: a line has %d bytes, more than %d: %.60s…", title, len(line), maxDecision, line))
		}
	}
	return problems
}

// anchor returns the anchor by which links refer to a heading.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteRune('-')
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// TestDecisionProblems checks that errors in the form of a document are found.
func TestDecisionProblems(t *testing.T) {
	const good = "# Decisions\n\n- [One, two](#one-two)\n\n## One, two\n\n### A\n- **Context**: x\n- **Decision**: y\n- **Consequence**: z\n"
	if problems := decisionProblems(good); len(problems) > 0 {
		t.Errorf("%q", problems)
	}
	for wrong, want := range map[string]string{
		strings.Replace(good, "- [One, two](#one-two)\n", "", 1):                      "its index is",
		strings.Replace(good, "## One, two\n", "", 1):                                 "A stands under no subject",
		strings.Replace(good, "- **Decision**: y\n", "", 1):                           "A has 2 lines",
		strings.Replace(good, "**Decision**", "**Choice**", 1):                        `does not begin with "- **Decision**: "`,
		strings.Replace(good, "z\n", strings.Repeat("z", 500)+"\n", 1):                "more than 420",
		good + "\n### A\n- **Context**: x\n- **Decision**: y\n- **Consequence**: z\n": "A is there twice",
		good + "\n**B.** In the old form.\n":                                          "A has 4 lines",
		strings.Replace(good, "### A\n", "Words.\n\n### A\n", 1):                      `"Words." belongs to no decision`,
	} {
		problems := decisionProblems(wrong)
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("problems %q, want one with %q", problems, want)
		}
	}
}
