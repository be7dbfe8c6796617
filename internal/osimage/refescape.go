package osimage

import (
	"fmt"
	"strings"

	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/osimage/source"
)

// The prefixes of ostree-ext's refs for layers and images of ostree-native containers.
const (
	blobRefs  = "ostree/container/blob/"
	imageRefs = "ostree/container/image/"
)

// partRefs is the prefix of the refs of layers of which only parts were fetched.
const partRefs = "pivot-parts/"

// blobRef returns the ref of a layer, for all images that have its blob.
func blobRef(digest string) string { return blobRefs + escapeRef(digest) }

// partRef returns the ref of a layer of which only parts were fetched. Its content was compared with the layer's table
// or diff ID. That this is the content of the blob is only what the image says. Another image may have the same blob
// with another table or diff ID, and must not get this content. So this ref is for images that say the same, until the
// image is deployed (Keep): who boots it believes it. It is "" for a layer that cannot be read by parts.
func partRef(l source.Layer) string {
	table := layer.TableDigest(l.Annotations)
	if table == "" || l.DiffID == "" {
		return ""
	}
	return partRefs + escapeRef(l.Digest) + "/" + escapeRef(table) + "/" + escapeRef(l.DiffID)
}

// blobOfPart returns the blobRef of the layer that a partRef is for.
func blobOfPart(ref string) string {
	digest, _, _ := strings.Cut(strings.TrimPrefix(ref, partRefs), "/")
	return blobRefs + digest
}

// isPartRef reports whether a ref is that of a layer of which only parts were fetched.
func isPartRef(ref string) bool { return strings.HasPrefix(ref, partRefs) }

// ofLayer reports whether a ref is that of a layer.
func ofLayer(ref string) bool { return strings.HasPrefix(ref, blobRefs) || isPartRef(ref) }

// imageRef returns the ref of an image.
func imageRef(r imageref.Reference) string { return imageRefs + escapeRef(r.TransportName()) }

// escapeRef escapes a text for use in a ref name (crates/ostree-ext/src/refescape.rs). ASCII
// letters and digits and "-" are kept, and so is a "/" that follows a letter or digit and does
// not end the text. "_" is doubled. Any other character is written as its hexadecimal code
// point between underscores.
func escapeRef(text string) string {
	var b strings.Builder
	runes := []rune(text)
	plain := false // the previous rune was a letter or digit
	for i, r := range runes {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		switch {
		case letter, r == '-', r == '/' && plain && i < len(runes)-1:
			b.WriteRune(r)
		case r == '_':
			b.WriteString("__")
		default:
			fmt.Fprintf(&b, "_%02X_", r)
		}
		plain = letter
	}
	return b.String()
}
