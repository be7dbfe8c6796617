package imageref

import "strings"

// Written is Parse for a document that must keep the text of its writer: String returns that. With an error, the reference
// has only its text and its digest.
func Written(text string) (Reference, error) {
	r, err := Parse(text)
	if err != nil {
		_, digest, _ := strings.Cut(text, "@")
		r = of(parts{digest: digest})
	}
	return r.writtenAs(text), err
}

func (r Reference) writtenAs(text string) Reference {
	p := r.parts()
	p.text = ""
	if text != of(p).String() {
		p.text = text
	}
	return of(p)
}

// FromOrigin returns the reference in the origin of a deployment. Another program may have written it, so it is that of
// Written, whatever Parse refuses, without what ostree alone needs before a registry.
func FromOrigin(text string) Reference {
	r, _ := Written(text)
	return r.writtenAs(withoutScheme(text))
}

// withoutScheme returns the name HOST/PATH[:TAG][@DIGEST] in an ostree image reference. A tag keeps how the image's
// signature is verified. An image that comes from elsewhere, or is verified with the keys of an ostree remote, keeps all.
func withoutScheme(text string) string {
	for _, scheme := range []string{"ostree-unverified-registry:", "ostree-unverified-image:docker://", "ostree-unverified-image:registry:"} {
		if name, ok := strings.CutPrefix(text, scheme); ok {
			return name
		}
	}
	const signed = string(trustSigned) + ":"
	for _, scheme := range []string{signed + "docker://", signed + "registry:"} {
		if name, ok := strings.CutPrefix(text, scheme); ok && strings.Contains(name, "@") {
			return name
		} else if ok {
			return signed + "docker://" + name
		}
	}
	return text
}
