package osimage

import (
	"cmp"
	"runtime"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/source"
)

// labelArchitecture is the label of images built on Red Hat's, with the kernel's name of the
// architecture.
const labelArchitecture = "architecture"

// platform is what an image was built for, or what a machine is.
type platform struct {
	os           string // as in GOOS
	architecture string // as in GOARCH
	variant      string // of the architecture, as "v7"; "" if there is one only, or not known
}

// goarch is Go's name of an architecture, with "/VARIANT" for arm. It knows the names of
// uname(2) and Debian, and those that people write.
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

// platformOf reads a platform; the architecture may have any of its names, and the variant
// may follow it after a slash.
func platformOf(os, architecture, variant string) platform {
	name, in, _ := strings.Cut(goarch(strings.ToLower(strings.TrimSpace(architecture))), "/")
	return platform{strings.ToLower(os), name, cmp.Or(strings.ToLower(variant), in)}
}

// thisMachine is the platform that images must be for: of the architecture that is
// given, or this program's.
func (p *Puller) thisMachine() platform {
	return platformOf("linux", cmp.Or(p.Architecture, runtime.GOARCH), "")
}

// statedBy is the platform that an image says it is for, by its config, which every tool
// writes. The label counts only if the config says nothing: a build may have inherited it
// from its base.
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

// runs is an error if an image for the given platform does not run on this one. Whatever
// the image does not state matches.
func (p platform) runs(image platform) error {
	of := image
	of.os, of.architecture = cmp.Or(image.os, p.os), cmp.Or(image.architecture, p.architecture)
	if of.os == p.os && of.architecture == p.architecture && !p.lacks(image.variant) {
		return nil
	}
	return fault.New(fault.Refused, "it is for %s, but the machine is %s", of, p).
		WithHint("use the image that is built for %s", p)
}

// lacks reports whether a machine is too old for a variant. Only arm's are ordered (the OS
// of a v6 runs on a v7); those of others name features that an image may use or not.
func (p platform) lacks(variant string) bool {
	return p.architecture == "arm" && p.variant != "" && variant > p.variant
}
