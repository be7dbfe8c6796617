package kargs

import (
	"slices"
	"strconv"
	"strings"
)

// weakening returns why an argument weakens the security of a machine though no rule of the policy has its spelling; "" if it
// does not. The rule is what the kernel's parser does with a value, not how the value is written: selinux=+0 is selinux=0.
func (p Policy) weakening(arg string) string {
	key, value, given := parts(arg)
	if !given || len(p.rules) == 0 { // without rules, nothing is judged
		return ""
	}
	switch key {
	case "mitigations":
		return mitigations(value)
	case "lsm":
		if !slices.ContainsFunc(strings.Split(value, ","), func(m string) bool { return m == "selinux" || m == "apparmor" }) {
			return "leaves out SELinux and its like"
		}
		return ""
	case "lockdown":
		if value != "integrity" && value != "confidentiality" {
			return "switches kernel lockdown off"
		}
		return ""
	}
	spellings := []string{strings.ToLower(value)}
	for part := range strings.SplitSeq(spellings[0], ",") { // many read a list, and compare only the beginning of a word
		spellings = append(spellings, part)
		for _, r := range p.rules {
			if of, is := strings.CutPrefix(r.pattern, key+"="); is && len(of) > 1 && strings.HasPrefix(part, of) {
				spellings = append(spellings, of)
			}
		}
	}
	if n, ok := number(value); ok && n == 0 || slices.Contains([]string{"off", "no", "n", "false", "f"}, spellings[0]) {
		spellings = append(spellings, "0", "off", "no")
	} else if isFalse(value) { // a rule for 0 says that the value is a number, or a boolean
		spellings = append(spellings, "0")
	}
	if isOne(value) {
		spellings = append(spellings, "1")
	}
	if strings.HasPrefix(key, "sysctl") { // the kernel takes / for . in it
		key = strings.ReplaceAll(key, "/", ".")
		spellings = append(spellings, value)
	}
	for _, spelling := range spellings {
		if last := p.decisive(key + "=" + spelling); last.verdict == warn {
			return last.reason
		}
	}
	return ""
}

// mitigations judges the value of mitigations=. "auto,nosmt" strengthens. Since Linux 6.17, "auto;no_user_kernel"
// and its like leave out a kind of attack.
func mitigations(value string) string {
	for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == ';' }) {
		if part == "off" {
			return "switches every CPU vulnerability mitigation off"
		}
		if strings.HasPrefix(part, "no_") {
			return "switches the mitigations against one kind of attack off"
		}
	}
	return ""
}

// isFalse reports whether kstrtobool of the kernel reads a value as false: only the first character counts, or two of "off".
func isFalse(value string) bool {
	if _, ok := number(value); ok {
		return false
	}
	value = strings.ToLower(value)
	return strings.HasPrefix(value, "0") || strings.HasPrefix(value, "n") || strings.HasPrefix(value, "f") || strings.HasPrefix(value, "of")
}

// isOne reports whether the kernel reads a value as true or 1.
func isOne(value string) bool {
	if n, ok := number(value); ok {
		return n == 1
	}
	value = strings.ToLower(value)
	return strings.HasPrefix(value, "1") || strings.HasPrefix(value, "y") || strings.HasPrefix(value, "t") || strings.HasPrefix(value, "on")
}

// number parses a value as the kernel does: with a sign, in decimal, octal or hexadecimal digits.
func number(value string) (uint64, bool) {
	value = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(value, "\n"), "+"), "-")
	n, err := strconv.ParseUint(value, 0, 64)
	return n, err == nil
}
