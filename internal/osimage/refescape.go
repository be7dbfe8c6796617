package osimage

import (
	"fmt"
	"strings"

	"machine-pivot/internal/osimage/imageref"
)

// The prefixes of ostree-ext's refs for layers and images of ostree-native containers.
const (
	blobRefs  = "ostree/container/blob/"
	imageRefs = "ostree/container/image/"
)

// blobRef returns the ref of a layer.
func blobRef(digest string) string { return blobRefs + escapeRef(digest) }

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
