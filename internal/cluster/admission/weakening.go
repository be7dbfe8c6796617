package admission

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// weakened returns why a spec weakens the security of machines: what it brings to the kernel's command line that
// the old one has not. old is JSON of a spec that may be invalid by today's rules; empty if there was none.
func weakened(spec machineconfig.Spec, old []byte, policy kargs.Policy) (all []string) {
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
// with arguments that cannot be judged. It judges also the configs that the spec's refers to, because the renderer merges
// them; what is fetched cannot be judged, and counts.
func weaknesses(spec machineconfig.Spec, policy kargs.Policy) map[string]string {
	found := map[string]string{}
	addArguments(found, lineOf(spec), "", policy)
	if spec.Config != nil {
		addConfig(found, *spec.Config, policy)
	}
	return found
}

// addConfig adds the weaknesses of a config and of those that it refers to.
func addConfig(found map[string]string, config ignition.Config, policy kargs.Policy) {
	addFiles(found, config, policy)
	inline, unseen := ignition.Referred(config, authored.ParseIgnition)
	for _, r := range unseen {
		found[fmt.Sprintf("the config %s with %x", ignition.Address(*r.Source), hashOf(r))] = "it is merged, and what is in it cannot be seen here"
	}
	for _, c := range inline {
		addArguments(found, lineOf(machineconfig.Spec{Config: &c}), " (in a config that is merged)", policy)
		addFiles(found, c, policy)
	}
}

// addArguments adds the arguments of a line that weaken security. where is added to the reasons.
func addArguments(found map[string]string, line kargs.Line, where string, policy kargs.Policy) {
	for _, arg := range line {
		if why := weakens(arg, policy); why != "" {
			found[plainly(arg)] = why + where
		}
	}
}

// addFiles adds the weaknesses of a config's files and links from which kernel arguments come.
func addFiles(found map[string]string, config ignition.Config, policy kargs.Policy) {
	for _, f := range config.Storage.Files {
		if !bringsArguments(f.Path) {
			continue
		}
		args, ok := argumentsIn(f)
		if !ok {
			found[fmt.Sprintf("the file %s with %x", f.Path, hashOf(f.Contents, f.Append))] = "it has kernel arguments, and what is in it cannot be seen here"
		}
		addArguments(found, args, " (in the file "+f.Path+")", policy)
	}
	for _, l := range config.Storage.Links {
		if bringsArguments(l.Path) || leadsToArguments(l.Path) {
			found["the link "+l.Path] = "it leads to kernel arguments that are not judged"
		}
	}
}

// lineOf returns the kernel arguments of a spec, of both members that have some. They are also split as they
// stand on the line together: a quote in one entry can reach into the next one.
func lineOf(spec machineconfig.Spec) (line kargs.Line) {
	entries := spec.Arguments()
	for _, entry := range entries {
		line = append(line, kargs.Split(entry)...)
	}
	return append(line, kargs.Split(strings.Join(entries, " "))...)
}

// lenient reads as much of a spec as can be read.
func lenient(text []byte) (spec machineconfig.Spec) {
	var old struct {
		KernelArguments []string        `json:"kernelArguments"`
		Config          ignition.Config `json:"config"`
	}
	_ = json.Unmarshal(text, &old) // of what it cannot read, it reads the rest
	return machineconfig.Spec{KernelArguments: old.KernelArguments, Config: &old.Config}
}

// plainly returns an argument as the kernel compares it: its key with _ for -, and without quotes.
func plainly(arg string) string {
	key, value, given := strings.Cut(strings.ReplaceAll(arg, `"`, ""), "=")
	if !given {
		return sameKey(key)
	}
	return sameKey(key) + "=" + value
}

// weakens returns why a kernel argument weakens the security of a machine; "" if it does not. It is what pivot warns about:
// see kargs.Policy.
func weakens(arg string, policy kargs.Policy) string {
	for _, p := range policy.Check(arg) {
		if p.Severity != problem.Error {
			return p.Message
		}
	}
	return ""
}

// sameKey spells the key as the table does: for the kernel, - and _ are the same in it.
func sameKey(key string) string { return strings.ReplaceAll(key, "-", "_") }

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
