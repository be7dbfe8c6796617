package machineconfig

import (
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/osimage/imageref"
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

// ThisAPI describes, in errors about unknown members, the type that lacks them.
const ThisAPI = "a MachineConfig of the API version v1"

// Spec is the spec of a MachineConfig.
type Spec struct {
	OSImageURL      imageref.Reference // as given; zero keeps the booted image
	ExtensionsImage imageref.Reference // spec.baseOSExtensionsContainerImage: the packages of extensions and kernels; zero if not specified
	Config          *ignition.Config   // as its author wrote it; nil: none, and on a machine, which has its entries
	KernelArguments []string           // entries as given; each may have several arguments
	Extensions      []string           // names as in spec.extensions
	FIPS            bool
	KernelType      string // "" means the default
}

// specMembers returns the members of spec in this API.
func specMembers() []string {
	return []string{"osImageURL", "baseOSExtensionsContainerImage", "config", "kernelArguments", "extensions", "fips", "kernelType"}
}

// Arguments returns the kernel arguments of both members that bring some to the command line: the
// spec's own, and those that Ignition adds.
func (s Spec) Arguments() []string {
	if s.Config == nil {
		return s.KernelArguments
	}
	return slices.Concat(s.KernelArguments, ignition.Arguments(*s.Config))
}

// DecodeSpec decodes all members of a spec except config.
func (host Host) DecodeSpec(n document.Node) Spec {
	s := Spec{
		OSImageURL:      decodeImage(n.Get("osImageURL")),
		KernelArguments: Arguments(n.Get("kernelArguments"), host.policy()),
		FIPS:            n.Get("fips").Boolean(),
		KernelType:      decodeKernelType(n.Get("kernelType"), host.Architecture),
		Extensions:      decodeExtensions(n.Get("extensions")),
	}
	s.ExtensionsImage = host.extensionsImage(n.Get("baseOSExtensionsContainerImage"), s)
	if host.Author {
		n.Known(ThisAPI, specMembers()...)
	} else {
		unknown(n)
	}
	return s
}

func (host Host) policy() kargs.Policy {
	if host.Policy == nil {
		return kargs.DefaultPolicy()
	}
	return *host.Policy
}

// unknown warns about unknown members. A cluster's API server admits only members of its API,
// so an unknown one is from a later API, and rejecting it would keep the machine from joining.
// A known name in different case is an error, because readers that ignore case, such as the
// machine-config daemon, take it for the known one.
func unknown(asked document.Node) {
	for key, n := range asked.Members() {
		switch meant := slices.IndexFunc(specMembers(), func(name string) bool { return strings.EqualFold(name, key) }); {
		case meant < 0:
			n.Warn("unknown member; this version of pivot does nothing about it")
		case specMembers()[meant] != key:
			n.Report.Add(problem.Errorf(n.Path, "unknown member").WithHint("is " + specMembers()[meant] + " meant?"))
		}
	}
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

// decodeImage decodes an image reference. It warns if the reference has no digest.
func decodeImage(n document.Node) (name imageref.Reference) {
	text := n.Text()
	if text == "" {
		return name
	}
	name, err := imageref.Written(text)
	if err != nil {
		n.Fail("%v", err)
	} else if name.Digest() == "" {
		n.Warn("%s is not pinned by a digest: what is pulled is decided when it is pulled", problem.Quoted(text))
	}
	return name
}

// extensionsImage decodes the reference of the image with packages. If nothing is taken from it, an unusable one is only
// warned of: it must not keep a machine from its first boot.
func (host Host) extensionsImage(n document.Node, s Spec) (none imageref.Reference) {
	ownKernel := s.KernelType == "" || s.KernelType == KernelDefault
	if host.Author || !ownKernel || len(s.Extensions) > 0 {
		return decodeImage(n)
	}
	if text := n.Text(); text != "" {
		if _, err := imageref.Parse(text); err != nil {
			n.Warn("%v; nothing is taken from this image now", err)
		}
	}
	return none
}

// Arguments decodes a list of kernel arguments and checks them against a policy.
func Arguments(n document.Node, policy kargs.Policy) []string {
	var entries []string
	for _, item := range n.Items() {
		if item.IsNull() {
			item.Fail("it is null, not a string")
		}
		entry := item.Text()
		checkArgument(item, entry, policy)
		entries = append(entries, entry)
	}
	return entries
}

// checkArguments checks the kernel arguments of an Ignition config, at n, as those of a spec. An argument that a
// MachineConfig brings to the command line is judged alike in both members that can have it. A machine with an older
// Ignition has them in the spec.
func checkArguments(n document.Node, config ignition.Config, policy kargs.Policy) {
	for i, entry := range ignition.Arguments(config) {
		checkArgument(n.At(inConfig+document.Element(i)), entry, policy)
	}
}

func checkArgument(n document.Node, entry string, policy kargs.Policy) {
	for _, p := range policy.Check(entry) {
		n.Report.Add(p.Within(n.Path, problem.Quoted(p.Path)+" "))
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

// checkTogether rejects members of a whole spec that are invalid only together. The machine applies the rule about the
// length again, with the arguments that it already has, and with what its boot loader adds.
func (s Spec) checkTogether(n document.Node) {
	if err := checkTogether(s.KernelType, s.Extensions); err != nil {
		n.Get("extensions").Fail("%v", err)
	}
	s.CheckFIPS(n)
	result, err := kargs.Change{New: CommandLine(s.Arguments())}.Apply(nil)
	if err == nil {
		err = result.Final.Fits(nil)
	}
	if err != nil {
		n.Get("kernelArguments").Fail("together they have %v", err)
	}
}

// CheckFIPS reports kernel arguments that contradict spec.fips in a whole MachineConfig. One that is merged into others
// may have both fips=1 and "fips: false", which typed writers emit by default.
func (s Spec) CheckFIPS(n document.Node) {
	check := func(n document.Node, entries []string) {
		for i, entry := range entries {
			for _, value := range kargs.Split(entry).Values("fips") {
				if on := (kargs.Line{"fips=" + value}).FIPS(); on != s.FIPS {
					n.At(document.Element(i)).Fail("fips=%s contradicts spec.fips, which is %v", problem.Quoted(value), s.FIPS)
				}
			}
		}
	}
	check(n.Get("kernelArguments"), s.KernelArguments)
	if s.Config != nil {
		check(n.At(".config"+inConfig), ignition.Arguments(*s.Config))
	}
}

// inConfig is the path of kernel arguments in an Ignition config.
const inConfig = ".kernelArguments.shouldExist"
