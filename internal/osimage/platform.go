package osimage

import (
	"cmp"
	"runtime"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/source"
)

// labelArchitecture is what images built on Red Hat's say, by the kernel's name.
const labelArchitecture = "architecture"

// platform is what an image was built for, or what a machine is.
type platform struct {
	os           string // as in GOOS
	architecture string // as in GOARCH
	variant      string // of the architecture, as "v7"; "" if there is one only, or not known
}

// goarch is Go's name of an architecture, with the variant that a name of arm's
// implies: for uname(2)'s names, Debian's, and what people write.
func goarch(name string) string {
	switch name {
	case "x86_64", "x86-64", "x64":
		return "amd64"
	case "i386", "i486", "i586", "i686", "x86":
		return "386"
	case "aarch64":
		return "arm64"
	case "armv5l", "armv6l", "armv7l", "armv8l":
		return "arm/" + name[3:5]
	case "armhf":
		return "arm/v7"
	case "ppc64el", "powerpc64le":
		return "ppc64le"
	case "loongarch64":
		return "loong64"
	}
	return name
}

// platformOf reads names as they are written: the architecture in any of its names,
// with its variant behind a slash or apart.
func platformOf(os, architecture, variant string) platform {
	name, in, _ := strings.Cut(goarch(strings.ToLower(strings.TrimSpace(architecture))), "/")
	return platform{strings.ToLower(os), name, cmp.Or(strings.ToLower(variant), in)}
}

// thisMachine is the platform that images must be for: of the architecture that is
// given, or this program's.
func (p *Puller) thisMachine() platform {
	return platformOf("linux", cmp.Or(p.Architecture, runtime.GOARCH), "")
}

// statedBy is the platform that an image says it is for. Its config counts, which
// every tool writes; the label, which a build may inherit from its base, only where
// that says nothing.
func statedBy(opened *source.Image) platform {
	return platformOf(opened.OS, cmp.Or(opened.Architecture, opened.Labels[labelArchitecture]), opened.Variant)
}

func (p platform) String() string {
	text := p.os + "/" + p.architecture
	if p.variant != "" {
		text += "/" + p.variant
	}
	return text
}

// runs is an error if an image for another platform does not run here. What an
// image does not state is no obstacle.
func (p platform) runs(image platform) error {
	of := image
	of.os, of.architecture = cmp.Or(image.os, p.os), cmp.Or(image.architecture, p.architecture)
	if of.os == p.os && of.architecture == p.architecture && !p.lacks(image.variant) {
		return nil
	}
	return fault.New(fault.Refused, "it is for %s, but the machine is %s", of, p).
		WithHint("use the image that is built for %s", p)
}

// lacks reports whether a machine is too old for a variant. Those of arm are an
// order (the OS of a v6 runs on a v7); the others' name features of the processor,
// which an image may use or not.
func (p platform) lacks(variant string) bool {
	return p.architecture == "arm" && p.variant != "" && variant > p.variant
}
