package osimage

import (
	"fmt"
	"strings"

	"machine-pivot/internal/osimage/imageref"
)

// Where ostree-ext has its refs for images and layers of ostree-native containers.
const (
	blobRefs  = "ostree/container/blob/"
	imageRefs = "ostree/container/image/"
)

// blobRef is the ref of a layer.
func blobRef(digest string) string { return blobRefs + escapeRef(digest) }

// imageRef is the ref of an image.
func imageRef(r imageref.Reference) string { return imageRefs + escapeRef(r.TransportName()) }

// escapeRef makes a text a ref name (crates/ostree-ext/src/refescape.rs): letters
// and digits of ASCII and "-" stand for themselves, "/" too between a letter or
// digit and something else; "_" is doubled; of all others the code point is
// written in hexadecimal between underscores.
func escapeRef(text string) string {
	var b strings.Builder
	runes := []rune(text)
	plain := false // the rune before was a letter or digit
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
