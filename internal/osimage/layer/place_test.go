package layer_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/osimage/layer"
)

// TestPlace has different spellings of names by various tools.
func TestPlace(t *testing.T) {
	for _, row := range []struct {
		name, place string
		kept        bool
	}{
		{"usr/bin/a", "usr/bin/a", true}, {"./usr/bin/a", "usr/bin/a", true}, {"/usr/bin/a", "usr/bin/a", true},
		{"usr//bin/./a/", "usr/bin/a", true}, {".///usr/bin/a//", "usr/bin/a", true}, {"./", "", true}, {".", "", true}, {"", "", true}, {"/", "", true},
		{"usr/..a/b..", "usr/..a/b..", true}, {"usr/...", "usr/...", true},
		{"etc", "usr/etc", true}, {"./etc/a", "usr/etc/a", true}, {"etcetera", "etcetera", true}, {".wh.etc", "usr/.wh.etc", true}, {"usr/etc/a", "usr/etc/a", true},
		{"run", "run", true}, {"run/", "run", true}, {"./run/a", "run/a", false}, {"runs/a", "runs/a", true}, {"dev/null", "dev/null", false},
		{"sysroot", "sysroot", true}, {"sysroot/ostree", "sysroot/ostree", false}, {"sysroot/ostreed", "sysroot/ostreed", true},
		{"sysroot/ostree/repo", "sysroot/ostree/repo", true}, // may be the target of hard links
		{strings.Repeat("a", 255), strings.Repeat("a", 255), true},
	} {
		kept, err := layer.New().Kept(row.name)
		if err != nil || kept != row.kept || layer.Place(row.name) != row.place {
			t.Errorf("%q is at %q, kept: %v, %v; want %q, %v", row.name, layer.Place(row.name), kept, err, row.place, row.kept)
		}
	}
	for _, bad := range []string{"..", "../a", "usr/../a", "usr/..", "./..", "a\x00b", "a\xff", strings.Repeat("a", 256), "usr/" + strings.Repeat("a", 256) + "/b", strings.Repeat("a/", 2048)} {
		if _, err := layer.New().Kept(bad); err == nil {
			t.Errorf("%.40q: no error", bad)
		}
	}
}
