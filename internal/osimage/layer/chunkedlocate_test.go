package layer_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
)

// TestChunkedLocate: only positions within the blob and within the limits are accepted.
func TestChunkedLocate(t *testing.T) {
	const prefix = "io.github.containers.zstd-chunked."
	digest := "sha256:" + strings.Repeat("ab", 32)
	for _, c := range []struct {
		digest, table, skeleton string
		good                    bool
	}{
		{digest, "1000:100:400:1", "1108:50:200", true},
		{digest, "1000:100:400:1", "", true},
		{digest, "1000:1:400:1", "", true},
		{digest, "1000:100:400:1", "1099:50:200", false},
		{digest, "1000:100:400:1", "1951:50:200", false},
		{digest, "1000:100:400:1", "1108:50", false},
		{digest, "1000:100:400:2", "", false},
		{digest, "1000:100:400", "", false},
		{digest, "", "", false},
		{digest, "8:100:400:1", "", false},
		{digest, "1901:100:400:1", "", false},
		{digest, "1000:0:400:1", "", false},
		{digest, "-1000:100:400:1", "", false},
		{digest, "1000:9223372036854775807:400:1", "", false},
		{digest, "9223372036854775807:100:400:1", "", false},
		{digest, "1000:100:9223372036854775807:1", "", false},
		{digest, "1000:99999999999999999999:400:1", "", false},
		{"sha256:abc", "1000:100:400:1", "", false},
		{"sha512:" + strings.Repeat("ab", 32), "1000:100:400:1", "", false},
		{"sha256:" + strings.Repeat("xy", 32), "1000:100:400:1", "", false},
	} {
		annotations := map[string]string{prefix + "manifest-checksum": c.digest, prefix + "manifest-position": c.table}
		if c.skeleton != "" {
			annotations[prefix+"tarsplit-position"] = c.skeleton
		}
		_, found, err := layer.LocateChunked(annotations, 2000)
		if !found || (err == nil) != c.good || err != nil && fault.KindOf(err) != fault.BadInput {
			t.Errorf("%+v: %v, %v", c, found, err)
		}
	}
	if _, found, err := layer.LocateChunked(map[string]string{"other": "x"}, 2000); found || err != nil {
		t.Errorf("another layer: %v, %v", found, err)
	}
}

// TestChunkedLimits: what a table claims takes bounded memory and time.
func TestChunkedLimits(t *testing.T) {
	entry := func(size int64, n int) string {
		return fmt.Sprintf(`{"type":"reg","size":%d,"offset":%d,"endOffset":%d}`, size, 2*n+1, 2*n+2)
	}
	var many []string
	for n := range 1<<18 + 1 {
		many = append(many, entry(1, n))
	}
	frames := make([]byte, 2*len(many)+2)
	for name, c := range map[string]struct{ table, want string }{
		"files":      {`{"entries":[` + strings.Join(many, ",") + `]}`, "more than 262144 files"},
		"total":      {`{"entries":[` + entry(1<<36, 0) + "," + entry(1, 1) + `]}`, "more than 68719476736 bytes"},
		"one":        {`{"entries":[` + entry(1<<62, 0) + `]}`, "more than 68719476736 bytes"},
		"value":      {`{"x":"` + strings.Repeat("x", 10<<20) + `"}`, "a value of more than 4194304 bytes"},
		"order":      {`{"entries":[` + entry(1, 1) + "," + entry(1, 0) + `]}`, "cannot have 1 bytes at 1 to 2"},
		"place":      {`{"entries":[` + entry(1, len(many)+1) + `]}`, "cannot have 1 bytes"},
		"truncated":  {`{"entries":[` + entry(1, 0), "EOF"},
		"no table":   {`[]`, "in place of {"},
		"no entries": {`{"entries":{}}`, "in place of ["},
	} {
		blob, annotations := assemble(frames, []byte(c.table), nil)
		at, _, err := layer.LocateChunked(annotations, int64(len(blob)))
		if err != nil {
			t.Fatal(err)
		}
		var fetched int64
		l := blobLayer{blob: blob}
		_, err = layer.ReadChunked(at, l.fetch(at.Spans(), &fetched), func(layer.ChunkedFile) (n ostree.ObjectName, found bool) { return n, false })
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.KindOf(err) != fault.BadInput {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
