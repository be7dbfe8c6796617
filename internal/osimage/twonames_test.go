package osimage_test

import (
	"strings"
	"testing"

	"machine-pivot/test/worlds/registry"
)

// TestTwoNamesBetweenLayers: where /etc and /usr/etc become one directory, a note says what of a lower layer is lost. In one
// layer it is an error. A file of the same kind, and a whiteout, are what a container has, too.
func TestTwoNamesBetweenLayers(t *testing.T) {
	o, h := newOSTree(t), newHost(t, registry.Options{})
	base := o.asBase()
	for name, c := range map[string]struct {
		layers [][]entry
		note   string
	}{
		"a file over a directory": {[][]entry{{regular("usr/etc/x/conf", "lost")}, {regular("etc/x", "file")}}, "/usr/etc/x is a directory in a lower layer, and is lost: derived layer 2"},
		"a link over a directory": {[][]entry{{regular("usr/etc/d/x/conf", "lost")}, {symlink("etc/d/x", "/usr/lib")}}, "/usr/etc/d/x is a directory in a lower layer"},
		"a directory over a file": {[][]entry{{regular("etc/x", "lost")}, {regular("usr/etc/x/conf", "in")}}, "/usr/etc/x is a file or link in a lower layer"},
		"a file over a file":      {[][]entry{{regular("usr/etc/x", "1")}, {regular("etc/x", "2")}}, ""},
		"behind a whiteout":       {[][]entry{{regular("etc/x/conf", "1")}, {gone("etc/x"), regular("etc/x", "2")}}, ""},
		"outside of /etc":         {[][]entry{{regular("usr/share/x/conf", "1")}, {regular("usr/share/x", "2")}}, ""},
	} {
		ref, _ := h.push("os", base.derive(c.layers))
		result, err := h.importRef(ref, bare(t))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, c.note) || (c.note == "") != (notes == "") {
			t.Errorf("%s: notes %q, want %q", name, notes, c.note)
		}
	}
}
