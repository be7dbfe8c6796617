// Package spec judges what every MachineConfig has in common, whoever reads it: a host
// the one that Ignition left there, or those who write them all that they have.
package spec

import (
	"strings"

	"go.podman.io/image/v5/docker/reference"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/jsonpath"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// What every MachineConfig says of itself, and the annotation of those that the
// machine-config operator has rendered.
const (
	APIVersion  = "machineconfiguration.openshift.io/v1"
	Kind        = "MachineConfig"
	GeneratedBy = "machineconfiguration.openshift.io/generated-by-controller-version"
)

// Members are the members that spec has in this API.
func Members() []string {
	return []string{"osImageURL", "baseOSExtensionsContainerImage", "config", "kernelArguments", "extensions", "fips", "kernelType"}
}

// Identity checks what says that this is a MachineConfig. Typed clients leave
// kind and apiVersion out, so they may be absent.
func Identity(root document.Node) bool {
	if !root.Object() {
		if root.IsNull() {
			root.Fail("it is null, not an object")
		}
		return false
	}
	root.Get("kind").MustBe(Kind)
	root.Get("apiVersion").MustBe(APIVersion)
	root.Get("metadata").Object()
	return true
}

// Image checks the reference of an image; without a check of the
// caller's, by the grammar of registries.
func Image(n document.Node, check func(string) error) string {
	text := n.Text()
	if text == "" {
		return ""
	}
	if check == nil {
		check = func(s string) error {
			_, err := reference.ParseNormalizedNamed(strings.TrimPrefix(s, "docker://"))
			return err
		}
	}
	if err := check(text); err != nil {
		n.Fail("%v", err)
	} else if !strings.Contains(text, "@") {
		n.Warn("%s is not pinned by a digest: what is pulled is decided when it is pulled", problem.Quoted(text))
	}
	return text
}

// Arguments reads a list of kernel arguments and checks them against a policy.
func Arguments(n document.Node, policy kargs.Policy) []string {
	var entries []string
	for _, item := range n.Items() {
		if item.IsNull() {
			item.Fail("it is null, not a string")
		}
		entry := item.Text()
		for _, p := range policy.Check(entry) {
			n.Report.Add(p.Within(item.Path, problem.Quoted(p.Path)+" "))
		}
		entries = append(entries, entry)
	}
	return entries
}

// CheckLength refuses arguments that no command line has room for, by the rule that
// the machine applies when its own are known.
func CheckLength(n document.Node, entries []string) {
	result, err := kargs.Change{New: CommandLine(entries)}.Apply(nil)
	if err == nil {
		err = result.Final.Fits()
	}
	if err != nil {
		n.Fail("together they have %v", err)
	}
}

// CommandLine is all arguments of all entries.
func CommandLine(entries []string) kargs.Line {
	var line kargs.Line
	for _, entry := range entries {
		line = append(line, kargs.Split(entry)...)
	}
	return line
}

// Contradictions finds what is asked for in two ways.
func Contradictions(path string, entries []string, fips bool, report *problem.Report) {
	for i, entry := range entries {
		for _, value := range kargs.Split(entry).Values("fips") {
			if on := value == "1"; on != fips {
				report.Fail(path+".kernelArguments"+jsonpath.Element(i),
					"fips=%s contradicts spec.fips, which is %v", problem.Quoted(value), fips)
			}
		}
	}
}
