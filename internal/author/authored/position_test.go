package authored

import (
	"strings"
	"testing"
)

func TestPathAt(t *testing.T) {
	const in = `{"a":[1,{"b":"xyz"}],"c":true}`
	for mark, want := range map[string]string{"xyz": ".a[1].b", "true": ".c", `"c"`: ".c", "[1": ".a", `{"a"`: ""} {
		if got := pathAt([]byte(in), int64(strings.Index(in, mark))); got != want {
			t.Errorf("%s: %s, want %s", mark, got, want)
		}
	}
}
