package machineconfig

import (
	"slices"
	"strings"

	"go.podman.io/image/v5/docker/reference"

	"machine-pivot/hostfiles"
	"machine-pivot/kargs"
	"machine-pivot/machineconfig/document"
	"machine-pivot/machineconfig/jsonpath"
	"machine-pivot/pinning"
)

// EncapsulatedPath is where Ignition writes the encapsulated MachineConfig.
const EncapsulatedPath = "/etc/ignition-machine-config-encapsulated.json"

// Host is what must be known of the machine to judge a MachineConfig.
type Host struct {
	CPUs       pinning.CPUSet           // that it has; none: not known, not checked
	CheckImage func(image string) error // whether a reference can be used; nil: by the grammar of registries
	Policy     *kargs.Policy            // for kernel arguments; nil: the default one
}

// Desired is what a MachineConfig asks for.
type Desired struct {
	Name string
	// FromCluster says that a cluster's machine-config operator rendered the
	// MachineConfig: its daemon will hold the machine against it, to the letter.
	FromCluster     bool
	Image           string   // spec.osImageURL as given; "" keeps the booted image
	KernelArguments []string // entries as given, each may hold several arguments
	FIPS            bool
	Files           []hostfiles.File // CPU pinning files
}

// ParseEncapsulated reads an encapsulated MachineConfig. Desired is nil exactly if
// the report has an error; it may have warnings otherwise.
func ParseEncapsulated(data []byte, host Host) (*Desired, Report) {
	var report Report
	root, ok := document.ParseJSON(data, &report)
	if !ok || !identity(root) {
		return nil, report
	}
	spec := root.Get("spec")
	if !spec.Object() {
		if spec.IsNull() {
			spec.Fail("it is missing")
		}
		return nil, report
	}
	policy := kargs.DefaultPolicy()
	if host.Policy != nil {
		policy = *host.Policy
	}
	metadata := root.Get("metadata")
	d := &Desired{
		Name:            metadata.Get("name").Text(),
		FromCluster:     !metadata.Get("annotations").Get(generatedBy).IsNull(),
		Image:           imageReference(spec.Get("osImageURL"), host.CheckImage),
		KernelArguments: Arguments(spec.Get("kernelArguments"), policy),
		FIPS:            spec.Get("fips").Boolean(),
		Files:           files(spec.Get("config"), host),
	}
	unsupported(spec)
	contradictions(spec.Path, d.KernelArguments, d.FIPS, &report)
	checkLength(spec.Get("kernelArguments"), d.KernelArguments)
	if d.FromCluster {
		warnOfSpaces(spec.Get("kernelArguments"), d.KernelArguments)
	}
	if report.Failed() {
		return nil, report
	}
	return d, report
}

// identity checks what says that this is a MachineConfig. Typed clients leave
// kind and apiVersion out, so they may be absent.
func identity(root document.Node) bool {
	if !root.Object() {
		if root.IsNull() {
			root.Fail("it is null, not an object")
		}
		return false
	}
	root.Get("kind").MustBe(kindName)
	root.Get("apiVersion").MustBe(apiVersion)
	root.Get("metadata").Object()
	return true
}

// imageReference checks the reference of an image; without a check of the
// caller's, by the grammar of registries.
func imageReference(n document.Node, check func(string) error) string {
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
		n.Warn("%s is not pinned by a digest: what is pulled is decided when it is pulled", document.Quoted(text))
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
			add := item.Fail
			if p.Severity == kargs.Warning {
				add = item.Warn
			}
			add("%s %s", document.Quoted(p.Argument), p.Message)
		}
		entries = append(entries, entry)
	}
	return entries
}

// warnOfSpaces warns of arguments that the machine-config daemon never finds: it
// takes the boot entry's line apart at each space, also between quotes.
func warnOfSpaces(n document.Node, entries []string) {
	for i, entry := range entries {
		for _, arg := range kargs.Split(entry) {
			if strings.Contains(arg, " ") {
				n.At(jsonpath.Element(i)).Warn("%s holds a space: a cluster's machine-config daemon reports such an argument as missing, always", document.Quoted(arg))
			}
		}
	}
}

// checkLength refuses arguments that no command line has room for, by the rule that
// the machine applies when its own are known.
func checkLength(n document.Node, entries []string) {
	result, err := kargs.Change{New: commandLine(entries)}.Apply(nil)
	if err == nil {
		err = result.Final.Fits()
	}
	if err != nil {
		n.Fail("together they have %v", err)
	}
}

// unsupported refuses by name what would be lost if it were skipped. What is only
// unknown is warned of: a cluster's API server lets nothing through that its API
// does not have, so it is of a later API, and a machine that is refused for it
// could never join. A known name in other letters is a known name for readers who
// do not tell them apart, as the machine-config daemon.
func unsupported(spec document.Node) {
	for _, key := range spec.Keys() {
		n := spec.Get(key)
		switch key {
		case "osImageURL", "kernelArguments", "fips", "config":
		case "baseOSExtensionsContainerImage":
			n.Text() // where extensions would come from: without extensions it says nothing
		case "extensions":
			for _, item := range n.Items() {
				item.Fail("not implemented: extension %s", document.Quoted(item.Text()))
			}
		case "kernelType":
			if kind := n.Text(); kind != "" && kind != "default" {
				n.Fail("not implemented: kernelType %s; only the default kernel is", document.Quoted(kind))
			}
		default:
			if meant := slices.IndexFunc(specMembers(), func(name string) bool { return strings.EqualFold(name, key) }); meant >= 0 {
				n.Fail("unknown member; is %s meant?", specMembers()[meant])
				continue
			}
			n.Warn("unknown member; this version of pivot does nothing about it")
		}
	}
}

// contradictions finds what is asked for in two ways.
func contradictions(path string, entries []string, fips bool, report *Report) {
	for i, entry := range entries {
		for _, value := range kargs.Split(entry).Values("fips") {
			if on := value == "1"; on != fips {
				report.Fail(path+".kernelArguments"+jsonpath.Element(i),
					"fips=%s contradicts spec.fips, which is %v", document.Quoted(value), fips)
			}
		}
	}
}
