package kargs

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/problem"
)

// PolicyPath is the file with the administrator's policy, which adds to DefaultPolicy.
const PolicyPath = "/etc/pivot/kernel-args.policy"

// Policy specifies which arguments a configuration may set. The zero Policy has no rules.
type Policy struct{ rules []policyRule }

type policyRule struct {
	verdict verdict
	pattern string // as returned by meaning: KEY, KEY=VALUE, or PREFIX if prefix is set
	prefix  bool
	reason  string
}

// verdict is the first word of a rule.
type verdict string

const (
	forbid verdict = "forbid"
	refuse verdict = "refuse"
	warn   verdict = "warn"
	allow  verdict = "allow"
)

// DefaultPolicyText is the text of the default policy, to which an administrator's file adds.
// Comments in it describe the format.
//
//go:embed policy.txt
var DefaultPolicyText string

// DefaultPolicy returns the policy in DefaultPolicyText.
func DefaultPolicy() Policy {
	p, err := Policy{}.Extend(DefaultPolicyText)
	if err != nil {
		panic(err) // the text is part of the program, and a test parses it
	}
	return p
}

// Extend returns the policy with the rules in text appended. The error has one line for each
// invalid line of the text.
func (p Policy) Extend(text string) (Policy, error) {
	extended := Policy{slices.Clone(p.rules)}
	var wrong []error
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		r, err := parseRule(fields)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("line %d: %w", i+1, err))
			continue
		}
		extended.rules = append(extended.rules, r)
	}
	return extended, errors.Join(wrong...)
}

// parseRule parses VERDICT ARGUMENT REASON.
func parseRule(fields []string) (policyRule, error) {
	v := verdict(fields[0])
	if !slices.Contains([]verdict{forbid, refuse, warn, allow}, v) {
		return policyRule{}, fmt.Errorf("%q is no verdict; it is forbid, refuse, warn or allow", fields[0])
	}
	if len(fields) < 2 {
		return policyRule{}, fmt.Errorf("%s what? An argument must follow", v)
	}
	if len(fields) < 3 && v != allow {
		return policyRule{}, fmt.Errorf("%s %s: say why; people will read it", v, fields[1])
	}
	pattern, prefix := strings.CutSuffix(fields[1], "*")
	if strings.Contains(pattern, "*") || prefix && strings.Contains(pattern, "=") {
		return policyRule{}, fmt.Errorf("%s: a * may only end a key", fields[1])
	}
	if key, _, _ := parts(pattern); key == "" {
		return policyRule{}, fmt.Errorf("%s: the argument has no name", fields[1])
	}
	return policyRule{v, meaning(pattern), prefix, strings.Join(fields[2:], " ")}, nil
}

// matches reports whether the rule applies to an argument with this key and meaning.
func (r policyRule) matches(key, meaning string) bool {
	if r.prefix {
		return strings.HasPrefix(key, r.pattern)
	}
	return r.pattern == key || r.pattern == meaning
}

// decisive returns the rule that decides about an argument: the last that matches, unless an earlier one
// forbids the argument. It is the zero rule if none matches.
func (p Policy) decisive(arg string) (last policyRule) {
	key, _, _ := parts(arg)
	whole := meaning(arg)
	for _, r := range p.rules {
		if r.matches(key, whole) && last.verdict != forbid {
			last = r
		}
	}
	return last
}

// Permits reports whether a rule allows or warns about an argument: it is there on purpose, also where
// something besides the policy speaks against the argument.
func (p Policy) Permits(arg string) bool {
	return slices.Contains([]verdict{allow, warn}, p.decisive(arg).verdict)
}

// judge applies the rules to one argument. Without a rule it is allowed.
func (p Policy) judge(arg string) problem.Report {
	switch last := p.decisive(arg); last.verdict {
	case forbid, refuse:
		return problem.Report{problem.Errorf(arg, "%s", last.reason)}
	case warn:
		return problem.Report{problem.Warningf(arg, "%s", last.reason)}
	case "":
		if why := p.weakening(arg); why != "" {
			return problem.Report{problem.Warningf(arg, "%s", why)}
		}
	}
	return nil
}

// Check reports problems of the entries of a configuration. An entry may have several arguments.
// The path of a problem is the argument (or malformed entry) as written, and its message is the
// predicate of a sentence with the argument as subject.
func (p Policy) Check(entries ...string) problem.Report {
	var report problem.Report
	for _, entry := range entries {
		if msg := malformed(entry); msg != "" {
			report = append(report, problem.Errorf(entry, "%s", msg))
			continue
		}
		for _, arg := range Split(entry) {
			report = append(report, p.checkArgument(arg)...)
		}
	}
	return report
}

// checkArgument checks one argument, first for errors that do not depend on the policy.
func (p Policy) checkArgument(arg string) problem.Report {
	if arg == initSeparator {
		return problem.Report{problem.Errorf(arg, "would hand every argument after it to init")}
	}
	if key, _, _ := parts(arg); key == "" {
		return problem.Report{problem.Errorf(arg, "has no name")}
	}
	if report := p.judge(arg); len(report) > 0 {
		return report
	}
	return p.judgeOtherwise(arg)
}

// judgeOtherwise judges an argument as other readers of the line than the kernel's parser read it. The first code of the
// kernel and dracut divide it at each space, also between quotes. systemd leaves out ' and ", also within a word, and old
// releases leave out \. A word of a value counts only if it cannot be one of a text, as "1" can.
func (p Policy) judgeOtherwise(arg string) problem.Report {
	words := strings.Fields(strings.NewReplacer(`"`, "", "'", "", `\`, "").Replace(arg))
	for _, word := range words {
		if word == arg {
			continue // judged already
		}
		report := p.judge(word)
		if len(report) > 0 && (len(words) == 1 || !report.Failed() || strings.ContainsAny(word, ".=")) {
			return problem.Report{{Severity: report[0].Severity, Path: arg, Message: report[0].Message + ": some read " + word + " in it"}}
		}
	}
	return nil
}

// ParseEntries splits the entries of a MachineConfig's kernelArguments into arguments; an entry
// may have several. It fails if Check reports errors.
func (p Policy) ParseEntries(entries []string) (Line, error) {
	var line Line
	var wrong []string
	for _, entry := range entries {
		for _, found := range p.Check(entry).Errors() {
			wrong = append(wrong, fmt.Sprintf("%q: %s", found.Path, found.Message))
		}
		line = append(line, Split(entry)...)
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("cannot use kernel arguments: %s", strings.Join(wrong, "; "))
	}
	return line, nil
}
