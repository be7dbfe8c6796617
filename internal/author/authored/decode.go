package authored

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"

	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
)

// Decode reads all MachineConfigs of a file in YAML or JSON: one or several documents, or lists.
// The report has all problems, with file and line. MachineConfigs with problems are returned as far
// as they could be read, for further checks.
func Decode(file string, data []byte, rules Rules) ([]*MachineConfig, problem.Report) {
	var all []*MachineConfig
	others := 0
	taken := func(n document.Node) bool {
		is := rules.Other != nil && rules.Other(n)
		if is {
			others++
		}
		return is
	}
	report := document.Read(file, data, func(root document.Node) {
		for _, n := range machineconfig.Objects(root, taken) {
			if mc := decodeObject(n, rules); mc != nil {
				mc.file = file
				all = append(all, mc)
			}
		}
	})
	switch nothing := len(all)+others == 0 && !report.Failed(); {
	case nothing && len(report) > 0: // what it holds was left out
		report.Fail("$", "it holds no MachineConfig")
	case nothing:
		report.Warn("$", "it holds no MachineConfig")
	}
	return all, report.In(file)
}

// DecodeMade is Decode for objects that nobody has written, such as those that stand for flags. So the report has no lines.
func DecodeMade(object map[string]any, rules Rules) ([]*MachineConfig, problem.Report) {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // strings can always be written
	}
	all, report := Decode("", text, rules)
	for i := range report {
		report[i].Line = 0
	}
	return all, report
}

// sameNames reports MachineConfigs with the same name: a cluster can hold only one of them.
func sameNames(all []*MachineConfig) problem.Report {
	var report problem.Report
	files := map[string]string{}
	for _, mc := range all {
		if other, again := files[mc.Name]; again && mc.Name != "" {
			p := problem.Errorf("$.metadata.name", "the name %s is that of another MachineConfig too, in %s", problem.Quoted(mc.Name), other)
			p.File = mc.file
			report.Add(p)
		}
		files[mc.Name] = mc.file
	}
	return report
}

// decodeObject reads one MachineConfig; nil if it is none.
func decodeObject(n document.Node, rules Rules) *MachineConfig {
	if n.Get("kind").IsNull() && n.Get("variant").IsText() {
		n.Fail("this is Butane: pivotctl config ignition --image IMAGE --butane FILE adds what pivot needs; spec.config of a MachineConfig takes the output of butane")
		return nil
	}
	if !machineconfig.Identity(n) {
		return nil
	}
	if kind := n.Get("kind"); kind.IsText() && !kind.Is("", machineconfig.Kind) {
		return nil // it is another kind: further errors would be misleading
	}
	n.Known(machineconfig.ThisAPI, "kind", "apiVersion", "metadata", "spec")
	for _, key := range []string{"kind", "apiVersion"} {
		if n.Get(key).IsNull() {
			n.Get(key).Fail("it is missing")
		}
	}
	mc := &MachineConfig{}
	decodeMetadata(n.Get("metadata"), mc)
	spec := n.Get("spec")
	if !spec.Object() {
		if spec.IsNull() {
			spec.Fail("it is missing")
		}
		return mc
	}
	decodeSpec(spec, rules, mc)
	return mc
}

// objectName matches an object name in Kubernetes: RFC 1123, section 2.1, as implemented by the API
// server.
var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func decodeMetadata(n document.Node, mc *MachineConfig) {
	n.Known(machineconfig.ThisAPI, "name", "labels", "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers",
		"generateName", "generation", "managedFields", "namespace", "ownerReferences", "resourceVersion", "selfLink", "uid")
	name := n.Get("name")
	mc.Name = name.Text()
	switch {
	case name.IsNull() || mc.Name == "":
		name.Fail("it is missing")
	case len(mc.Name) > 253 || !objectName.MatchString(mc.Name):
		name.Fail("%s is no object's name: lower case letters, digits, - and . only, at most 253", problem.Quoted(mc.Name))
	}
	mc.Labels = n.Get("labels").Texts()
	mc.Annotations = n.Get("annotations").Texts()
	if role := mc.Role(); role != "" && !objectName.MatchString(role) {
		n.Get("labels").At(document.Member(RoleLabel)).Fail("%s is no role's name: lower case letters, digits, - and . only", problem.Quoted(role))
	}
	if mc.Role() == "" && !strings.HasPrefix(mc.Name, renderedPrefix) {
		n.Get("labels").Warn("the label %s is missing: no role takes this MachineConfig", RoleLabel)
	}
}

func decodeSpec(n document.Node, rules Rules, mc *MachineConfig) {
	rules.Room = cmp.Or(rules.Room, NewRoom())
	host := rules.Host()
	host.Author = true
	mc.Spec = host.DecodeSpec(n)
	mc.Spec.Config = decodeConfig(n.Get("config"), rules)
	// A program that writes all members, also the empty ones, has chosen nothing.
	image := n.Get("osImageURL")
	mc.deniesFIPS = !mc.Spec.FIPS && !n.Get("fips").IsNull() && (image.IsNull() || !mc.Spec.OSImageURL.IsZero())
	if mc.Spec.FIPS { // if not, another MachineConfig may set it
		mc.Spec.CheckFIPS(n)
	}
}

// parse reads a config. Only where its version cannot be read here, the whole text is read for it, and for what is wrong.
func parse(raw []byte, version document.Node) (ignition.Config, problem.Report) {
	if !version.IsText() || version.Is("") {
		return ParseIgnition(raw)
	}
	return parseIgnition(raw, version.Text())
}

// decodeConfig reads the Ignition config.
func decodeConfig(n document.Node, rules Rules) *ignition.Config {
	if n.IsText() {
		n.Fail("it is a string: an Ignition config stands here as an object, not as its text")
		return nil
	}
	if !n.Object() {
		return nil
	}
	version := n.Get("ignition").Get("version")
	config, problems := parse(n.JSON(), version)
	n.Report.Add(problems.Below(n.Path)...)
	if problems.Failed() {
		return nil
	}
	if ignition.Later(version.Text()) {
		version.Warn("a cluster's machine-config operator accepts versions up to %[1]s only; what pivot renders is of version %[1]s", ignition.Version)
	}
	CheckConfig(n, config, version.Text(), rules)
	if whole, ok := withReferred(n, config, rules, 0); ok {
		config = whole
	}
	return &config
}

// maxReferred is the largest number of inline configs that refer to one another.
const maxReferred = 10

// withReferred merges a config with the inline configs that it refers to, as Ignition and the renderer do: what is judged
// afterwards is what a machine gets. It judges each of them. If one is to be fetched, or has something to fetch, none is
// merged, because their order decides: the renderer does it once it has all.
func withReferred(n document.Node, config ignition.Config, rules Rules, depth int) (whole ignition.Config, ok bool) {
	var all []ignition.Config
	referred := ignition.Configs(&config)
	for _, p := range referred {
		if ignition.IsRemote(*p.Resource) {
			continue
		}
		if child, ok := readReferred(n.At(p.Path), *p.Resource, rules, depth); ok && len(ignition.Remote(&child)) == 0 {
			all = append(all, child)
		}
	}
	switch {
	case len(all) < len(referred):
		return config, false
	case config.Ignition.Config.Replace.Source != nil:
		return ignition.Merge(all...), true
	}
	config.Ignition.Config = ignition.Empty().Ignition.Config
	return ignition.Merge(append(all, config)...), true
}

// readReferred reads and judges an inline config. It reports false if it cannot be merged.
func readReferred(n document.Node, r ignition.Resource, rules Rules, depth int) (whole ignition.Config, ok bool) {
	if depth == maxReferred {
		n.Fail("more than %d configs name one another", maxReferred)
		return whole, false
	}
	content, err := ignition.Content(r, rules.Room)
	if err != nil {
		n.Fail("%v", err)
		return whole, false
	}
	config, report := ParseIgnition(content)
	inner := document.Node{Report: &report}
	if !report.Failed() {
		version, _ := ignition.VersionOf(content) // Parse has found one
		CheckConfig(inner, config, version, rules)
		whole, ok = withReferred(inner, config, rules, depth+1)
	}
	for _, p := range report {
		n.Report.Add(p.Within(n.Path, "in a data URL: "+strings.TrimPrefix(p.Path, ".")+": "))
	}
	return whole, ok
}
