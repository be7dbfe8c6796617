package machineconfig

import (
	"strings"

	"go.podman.io/image/v5/docker/reference"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// The apiVersion and kind of every MachineConfig, and the annotation of rendered ones, set by
// the machine-config operator.
const (
	APIVersion  = "machineconfiguration.openshift.io/v1"
	Kind        = "MachineConfig"
	GeneratedBy = "machineconfiguration.openshift.io/generated-by-controller-version"
)

// Members returns the members of spec in this API.
func Members() []string {
	return []string{"osImageURL", "baseOSExtensionsContainerImage", "config", "kernelArguments", "extensions", "fips", "kernelType"}
}

// Identity checks apiVersion, kind and metadata. apiVersion and kind may be absent, because
// typed clients omit them.
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

// Image checks an image reference with check; if that is nil, against the grammar of image
// references. It warns if the reference has no digest.
func Image(n document.Node, check func(string) error) string {
	text := n.Text()
	if text == "" {
		return ""
	}
	if err := checkImage(text, check); err != nil {
		n.Fail("%v", err)
	} else if !strings.Contains(text, "@") {
		n.Warn("%s is not pinned by a digest: what is pulled is decided when it is pulled", problem.Quoted(text))
	}
	return text
}

// UnusedImage reads the reference of an image that nothing is taken from. An unusable one is only warned of:
// it must not keep a machine from its first boot.
func UnusedImage(n document.Node, check func(string) error) {
	text := n.Text()
	if text == "" {
		return
	}
	if err := checkImage(text, check); err != nil {
		n.Warn("%v; nothing is taken from this image now", err)
	}
}

func checkImage(text string, check func(string) error) error {
	if check != nil {
		return check(text)
	}
	_, err := reference.ParseNormalizedNamed(strings.TrimPrefix(text, "docker://"))
	return err
}

// Arguments reads a list of kernel arguments and checks them against a policy.
func Arguments(n document.Node, policy kargs.Policy) []string {
	var entries []string
	for _, item := range n.Items() {
		if item.IsNull() {
			item.Fail("it is null, not a string")
		}
		entry := item.Text()
		CheckArgument(item, entry, policy)
		entries = append(entries, entry)
	}
	return entries
}

// CheckArgument checks an entry of kernel arguments against a policy. An argument that a MachineConfig
// brings to the command line is judged alike in both members that can have it.
func CheckArgument(n document.Node, entry string, policy kargs.Policy) {
	for _, p := range policy.Check(entry) {
		n.Report.Add(p.Within(n.Path, problem.Quoted(p.Path)+" "))
	}
}

// CheckLength rejects arguments that exceed the length of a kernel command line on their own.
// The machine applies the same rule together with the arguments that it already has, and with what its boot loader adds.
func CheckLength(n document.Node, entries []string) {
	result, err := kargs.Change{New: CommandLine(entries)}.Apply(nil)
	if err == nil {
		err = result.Final.Fits(nil)
	}
	if err != nil {
		n.Fail("together they have %v", err)
	}
}

// CommandLine returns the arguments of all entries.
func CommandLine(entries []string) kargs.Line {
	var line kargs.Line
	for _, entry := range entries {
		line = append(line, kargs.Split(entry)...)
	}
	return line
}

// Contradictions reports kernel arguments of the list n that contradict spec.fips, in a merged
// MachineConfig. A single file may have both fips=1 and "fips: false", which typed writers emit by
// default.
func Contradictions(n document.Node, entries []string, fips bool) {
	for i, entry := range entries {
		for _, value := range kargs.Split(entry).Values("fips") {
			if on := (kargs.Line{"fips=" + value}).FIPS(); on != fips {
				n.At(document.Element(i)).Fail("fips=%s contradicts spec.fips, which is %v", problem.Quoted(value), fips)
			}
		}
	}
}
