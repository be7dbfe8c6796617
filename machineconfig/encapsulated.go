package machineconfig

import (
	"fmt"
	"strings"

	"go.podman.io/image/v5/docker/reference"

	"machine-pivot/hostfiles"
	"machine-pivot/kargs"
	"machine-pivot/pinning"
)

// Host is what must be known of the machine to judge a MachineConfig.
type Host struct {
	CPUs       pinning.CPUSet           // that it has; none: not known, not checked
	CheckImage func(image string) error // whether a reference can be used; nil: by the grammar of registries
}

// Desired is what a MachineConfig asks for.
type Desired struct {
	Name            string
	Image           string   // spec.osImageURL as given; "" keeps the booted image
	KernelArguments []string // entries as given, each may hold several arguments
	FIPS            bool
	Files           []hostfiles.File // CPU pinning files
}

// ParseEncapsulated reads the MachineConfig that the machine-config server puts
// into /etc/ignition-machine-config-encapsulated.json. Desired is nil exactly if
// the report has an error; it may have warnings otherwise.
func ParseEncapsulated(data []byte, host Host) (*Desired, Report) {
	var report Report
	root, ok := parseTree(data, &report)
	if !ok || !identity(root) {
		return nil, report
	}
	spec := root.get("spec")
	if !spec.object() {
		if spec.isNull() {
			spec.fail("it is missing")
		}
		return nil, report
	}
	d := &Desired{
		Name:            root.get("metadata").get("name").text(),
		Image:           image(spec.get("osImageURL"), host),
		KernelArguments: arguments(spec.get("kernelArguments")),
		FIPS:            spec.get("fips").boolean(),
		Files:           files(spec.get("config"), host),
	}
	unsupported(spec)
	contradictions(spec, d)
	if report.Failed() {
		return nil, report
	}
	return d, report
}

// identity checks what says that this is a MachineConfig. Typed clients leave
// kind and apiVersion out, so they may be absent.
func identity(root node) bool {
	if !root.object() {
		if root.isNull() {
			root.fail("it is null, not an object")
		}
		return false
	}
	root.get("kind").mustBe("MachineConfig")
	root.get("apiVersion").mustBe("machineconfiguration.openshift.io/v1")
	root.get("metadata").object()
	return true
}

// image checks the reference of the OS image.
func image(n node, host Host) string {
	text := n.text()
	if text == "" {
		return ""
	}
	check := host.CheckImage
	if check == nil {
		check = func(s string) error {
			_, err := reference.ParseNormalizedNamed(strings.TrimPrefix(s, "docker://"))
			return err
		}
	}
	if err := check(text); err != nil {
		n.fail("%v", err)
	} else if !strings.Contains(text, "@") {
		n.report.warn(n.path, "%s is not pinned by a digest: what is pulled is decided when it is pulled", quoted(text))
	}
	return text
}

// arguments checks the kernel arguments.
func arguments(n node) []string {
	var entries []string
	for _, item := range n.items() {
		if item.isNull() {
			item.fail("it is null, not a string")
		}
		entry := item.text()
		for _, p := range kargs.Check(entry) {
			add := n.report.fail
			if p.Severity == kargs.Warning {
				add = n.report.warn
			}
			add(item.path, "%s %s", quoted(p.Argument), p.Message)
		}
		entries = append(entries, entry)
	}
	return entries
}

// unsupported refuses by name what would be lost if it were skipped.
func unsupported(spec node) {
	for _, key := range spec.keys() {
		n := spec.get(key)
		switch key {
		case "osImageURL", "kernelArguments", "fips", "config":
		case "baseOSExtensionsContainerImage":
			n.text() // where extensions would come from: without extensions it says nothing
		case "extensions":
			for _, item := range n.items() {
				item.fail("not implemented: extension %s", quoted(item.text()))
			}
		case "kernelType":
			if kind := n.text(); kind != "" && kind != "default" {
				n.fail("not implemented: kernelType %s; only the default kernel is", quoted(kind))
			}
		default:
			n.fail("unknown member; a MachineConfig of the API version v1 has no such")
		}
	}
}

// contradictions finds what is asked for in two ways.
func contradictions(spec node, d *Desired) {
	for i, entry := range d.KernelArguments {
		for _, value := range kargs.Split(entry).Values("fips") {
			if on := value == "1"; on != d.FIPS {
				spec.report.fail(fmt.Sprintf("%s.kernelArguments[%d]", spec.path, i),
					"fips=%s contradicts spec.fips, which is %v", quoted(value), d.FIPS)
			}
		}
	}
}
