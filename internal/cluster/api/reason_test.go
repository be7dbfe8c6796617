package api_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"machine-pivot/internal/cluster/api"
)

func TestBoundedReason(t *testing.T) {
	for text, want := range map[string]string{
		"cannot pull":                         "cannot pull",
		"https://me:secret@r.example/v2/: no": "https://r.example/v2/: no",
		"two\nlines \x1b[1m":                  `two\nlines \x1b[1m`,
	} {
		if got := api.BoundedReason(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	long := api.BoundedReason(strings.Repeat("ä", 3000))
	if len(long) > 2000 || len(long) < 1990 || !utf8.ValidString(long) || !strings.HasSuffix(long, " …") {
		t.Errorf("%d bytes, valid %v: …%q", len(long), utf8.ValidString(long), long[max(len(long)-10, 0):])
	}
}
