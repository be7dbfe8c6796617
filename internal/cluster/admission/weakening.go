package admission

import (
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

// weakened returns why kernel arguments that a spec has, and the old one has not, weaken the security of
// machines, by argument. old is JSON, and may be empty.
func weakened(spec authored.Spec, old []byte, policy kargs.Policy) []string {
	now, before := lineOf(spec), oldLine(old)
	reasons := map[string]string{}
	for _, arg := range now {
		if why := weakens(arg, policy); why != "" && !slices.Contains(before, arg) {
			reasons[arg] = why
		}
	}
	if from, to := lockdown(before), lockdown(now); to < from {
		reasons["lockdown"] = "the kernel's lockdown becomes weaker than it was"
	}
	var all []string
	for _, arg := range slices.Sorted(maps.Keys(reasons)) {
		all = append(all, problem.Quoted(arg)+": "+reasons[arg])
	}
	return all
}

// lineOf returns the kernel arguments of a spec, of both places that can have some.
func lineOf(spec authored.Spec) (line kargs.Line) {
	for _, entry := range spec.KernelArguments {
		line = append(line, kargs.Split(entry)...)
	}
	if spec.Config != nil {
		for _, entry := range spec.Config.KernelArguments.ShouldExist {
			line = append(line, kargs.Split(string(entry))...)
		}
	}
	return line
}

// oldLine is lineOf for a spec that may be invalid by today's rules: then what can be read of it counts.
func oldLine(spec []byte) kargs.Line {
	var old struct {
		KernelArguments []string `json:"kernelArguments"`
		Config          struct {
			KernelArguments struct {
				ShouldExist []ignition.KernelArgument `json:"shouldExist"`
			} `json:"kernelArguments"`
		} `json:"config"`
	}
	if len(spec) == 0 || json.Unmarshal(spec, &old) != nil {
		return nil
	}
	config := ignition.Empty()
	config.KernelArguments.ShouldExist = old.Config.KernelArguments.ShouldExist
	return lineOf(authored.Spec{KernelArguments: old.KernelArguments, Config: &config})
}

// weakens returns why a kernel argument weakens the security of a machine; "" if it does not. The table is that
// of the arguments which pivot warns about, kargs/policy.txt; this adds the spellings that a table cannot list.
func weakens(arg string, policy kargs.Policy) string {
	key, value, given := strings.Cut(strings.ReplaceAll(arg, `"`, ""), "=")
	key = sameKey(key)
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

// isZero reports whether the kernel reads a value as 0 or false: by kstrtobool or kstrtoul.
func isZero(value string) bool {
	if n, err := strconv.ParseUint(value, 0, 64); err == nil {
		return n == 0
	}
	value = strings.ToLower(value)
	return strings.HasPrefix(value, "n") || strings.HasPrefix(value, "f") || strings.HasPrefix(value, "of")
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
