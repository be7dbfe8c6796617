package imageref

import "strings"

// OfRegistry returns the name HOST/PATH[:TAG][@DIGEST] in an ostree image reference, and the reference in the form in
// which a Reference is written, which keeps how the image's signature is verified. registry is false for an
// image that comes from elsewhere or is verified with the keys of an ostree remote.
// Unlike Parse it adds no tag, and takes any name: an origin is what another program has written.
func OfRegistry(reference string) (name, plain string, registry bool) {
	for _, scheme := range []string{"ostree-unverified-registry:", "ostree-unverified-image:docker://", "ostree-unverified-image:registry:"} {
		if name, ok := strings.CutPrefix(reference, scheme); ok {
			return name, name, true
		}
	}
	const signed = "ostree-image-signed:"
	for _, scheme := range []string{signed + "docker://", signed + "registry:"} {
		if name, ok := strings.CutPrefix(reference, scheme); ok {
			return name, signed + "docker://" + name, true
		}
	}
	return reference, reference, false
}

// Untagged returns HOST/PATH of HOST/PATH:TAG.
func Untagged(name string) string {
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}
