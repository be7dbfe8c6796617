package admission

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// weakened returns why a spec weakens the security of machines: what it brings to the kernel's command line that
// the old one has not. old is JSON of a spec that may be invalid by today's rules; empty if there was none.
func weakened(spec authored.Spec, old []byte, policy kargs.Policy) (all []string) {
	now := weaknesses(spec, policy)
	if len(now) == 0 && !bytes.Contains(old, []byte("lockdown")) {
		return nil
	}
	was := lenient(old)
	before := weaknesses(was, policy)
	if lockdown(lineOf(spec)) < lockdown(lineOf(was)) {
		now["lockdown"] = "the kernel's lockdown becomes weaker than it was"
	}
	for _, what := range slices.Sorted(maps.Keys(now)) {
		if _, had := before[what]; !had {
			all = append(all, problem.Quoted(what)+": "+now[what])
		}
	}
	return all
}

// weaknesses returns what in a spec weakens security, with reasons: kernel arguments in one spelling, and files
// with arguments that cannot be judged.
func weaknesses(spec authored.Spec, policy kargs.Policy) map[string]string {
	found := map[string]string{}
	for _, arg := range lineOf(spec) {
		if why := weakens(arg, policy); why != "" {
			found[plainly(arg)] = why
		}
	}
	if spec.Config == nil {
		return found
	}
	for _, f := range spec.Config.Storage.Files {
		if !bringsArguments(f.Path) {
			continue
		}
		args, ok := argumentsIn(f)
		if !ok {
			found[fmt.Sprintf("the file %s with %x", f.Path, hashOf(f))] = "it has kernel arguments, and what is in it cannot be seen here"
		}
		for _, arg := range args {
			if why := weakens(arg, policy); why != "" {
				found[plainly(arg)] = why + " (in the file " + f.Path + ")"
			}
		}
	}
	for _, l := range spec.Config.Storage.Links {
		if bringsArguments(l.Path) {
			found["the link "+l.Path] = "it leads to kernel arguments that are not judged"
		}
	}
	return found
}

// lineOf returns the kernel arguments of a spec, of both members that have some. They are also split as they
// stand on the line together: a quote in one entry can reach into the next one.
func lineOf(spec authored.Spec) (line kargs.Line) {
	entries := spec.Arguments()
	for _, entry := range entries {
		line = append(line, kargs.Split(entry)...)
	}
	return append(line, kargs.Split(strings.Join(entries, " "))...)
}

// lenient reads as much of a spec as can be read.
func lenient(text []byte) (spec authored.Spec) {
	var old struct {
		KernelArguments []string        `json:"kernelArguments"`
		Config          ignition.Config `json:"config"`
	}
	_ = json.Unmarshal(text, &old) // of what it cannot read, it reads the rest
	return authored.Spec{KernelArguments: old.KernelArguments, Config: &old.Config}
}

// plainly returns an argument as the kernel compares it: its key with _ for -, and without quotes.
func plainly(arg string) string {
	key, value, given := strings.Cut(strings.ReplaceAll(arg, `"`, ""), "=")
	if !given {
		return sameKey(key)
	}
	return sameKey(key) + "=" + value
}

// weakens returns why a kernel argument weakens the security of a machine; "" if it does not. The table is that
// of the arguments which pivot warns about, kargs/policy.txt; this adds the spellings that a table cannot list.
func weakens(arg string, policy kargs.Policy) string {
	key, value, given := strings.Cut(plainly(arg), "=")
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
	spellings := []string{key}
	if given {
		spellings = []string{key + "=" + value, key + "=" + strings.ToLower(value)}
		if isZero(value) {
			spellings = append(spellings, key+"=0", key+"=off", key+"=no")
		}
	}
	for _, spelling := range spellings {
		for _, p := range policy.Check(spelling) {
			if p.Severity != problem.Error {
				return p.Message
			}
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

// sameKey spells the key as the table does: for the kernel, - and _ are the same in it.
func sameKey(key string) string { return strings.ReplaceAll(key, "-", "_") }

// isZero reports whether the kernel reads a value as 0 or false: by kstrtoul, or by kstrtobool, for which only the
// first character counts, or two of "off".
func isZero(value string) bool {
	if n, err := strconv.ParseUint(value, 0, 64); err == nil {
		return n == 0
	}
	value = strings.ToLower(value)
	return strings.HasPrefix(value, "0") || strings.HasPrefix(value, "n") || strings.HasPrefix(value, "f") || strings.HasPrefix(value, "of")
}

// lockdown returns the level of the kernel's lockdown that a command line asks for; 0 if none.
func lockdown(line kargs.Line) int {
	levels := []string{"", "integrity", "confidentiality"}
	level := 0
	for _, value := range line.Values("lockdown") { // the kernel never lowers it
		level = max(level, slices.Index(levels, value))
	}
	return level
}

// refusal says that a user lacks the right to weaken security, and with which arguments.
func refusal(user, name string, reasons []string) string {
	return fmt.Sprintf("user %s has no right to the verb %s on machineconfigs/%s, which these kernel arguments need: %s",
		problem.Quoted(user), VerbWeaken, cmp.Or(name, "*"), strings.Join(reasons, "; "))
}

// VerbWeaken is the verb of RBAC, on machineconfigs, that permits to add kernel arguments that weaken the
// security of machines.
const VerbWeaken = "weaken"
