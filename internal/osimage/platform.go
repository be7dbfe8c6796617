package osimage

import (
	"cmp"
	"runtime"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/source"
)

// labelArchitecture is a label of images that are built on Red Hat's. It has the kernel's
// name of the architecture.
const labelArchitecture = "architecture"

// platform is the platform that an image was built for, or that of a machine.
type platform struct {
	os           string // as in GOOS
	architecture string // as in GOARCH
	variant      string // of the architecture, such as "v7"; "" if it has only one, or if unknown
}

// goarch returns Go's name of an architecture, with "/VARIANT" for arm. It knows the names of
// uname(2) and Debian, and other common names.
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

// Architectures returns the architectures that Linux runs on, as in GOARCH.
func Architectures() []string {
	return []string{"386", "amd64", "arm", "arm64", "loong64", "mips", "mips64", "mips64le", "mipsle", "ppc64", "ppc64le", "riscv64", "s390x"}
}

// IsArchitecture reports whether a name, as Puller.Architecture takes it, is one of Architectures.
func IsArchitecture(name string) bool {
	return slices.Contains(Architectures(), platformOf("", name, "").architecture)
}

// platformOf returns a platform in normal form. The architecture may have any of its names,
// and may be followed by a slash and the variant.
func platformOf(os, architecture, variant string) platform {
	name, in, _ := strings.Cut(goarch(strings.ToLower(strings.TrimSpace(architecture))), "/")
	return platform{strings.ToLower(os), name, cmp.Or(strings.ToLower(variant), in)}
}

// target returns the platform that images must be for: Linux on Architecture or, if that is
// empty, on this program's.
func (p *Puller) target() platform {
	return platformOf("linux", cmp.Or(p.Architecture, runtime.GOARCH), "")
}

// statedBy returns the platform that an image is for, as stated by its config, which every
// tool writes. The label counts only if the config does not state the architecture, because a
// build may have inherited the label from its base.
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

// checkRuns returns an error if an image for the given platform does not run on this one.
// Fields that the image does not state match.
func (p platform) checkRuns(image platform) error {
	of := image
	of.os, of.architecture = cmp.Or(image.os, p.os), cmp.Or(image.architecture, p.architecture)
	if of.os == p.os && of.architecture == p.architecture && !p.tooOldFor(image.variant) {
		return nil
	}
	return fault.New(fault.Refused, "it is for %s, but the machine is %s", of, p).
		WithHint("use the image that is built for %s", p)
}

// tooOldFor reports whether a machine is too old for a variant. Only the variants of arm are
// ordered (an OS for v6 runs on v7); those of other architectures name features that an image
// need not use.
func (p platform) tooOldFor(variant string) bool {
	return p.architecture == "arm" && p.variant != "" && variant > p.variant
}
