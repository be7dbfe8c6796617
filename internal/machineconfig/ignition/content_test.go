package ignition_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig/ignition"
)

// gzipped returns a data URL of the compressed content.
func gzipped(content string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(content))
	_ = z.Close()
	return "data:;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// TestCheckContent: for a resource of a valid config, CheckContent finds what Content finds.
func TestCheckContent(t *testing.T) {
	const each, all = 40, 60
	kind, hash, right, unknown := "gzip", "sha256-"+strings.Repeat("0", 64), "sha256-2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824", "md5-0"
	for _, source := range []string{
		"", "data:,", "data:,abc", "data:,a%20b%2Cc", "data:text/plain;charset=utf-8;base64,aGVsbG8=", "data:;base64,aGk=", "data:;base64,YQ==",
		"data:," + strings.Repeat("x", each), "data:," + strings.Repeat("x", each+1), "data:," + strings.Repeat("%20", each), "data:," + strings.Repeat("%20", each+1),
		"data:;base64," + strings.Repeat("YWJj", each/3), "data:;base64," + strings.Repeat("YWJj", each), "https://example.com/a", "data:;base64,H4sIAAAAAAAAA8vIBACsKpPYAgAAAA==",
		gzipped("hello"), gzipped(strings.Repeat("x", each)), gzipped(strings.Repeat("x", each+1)), gzipped(strings.Repeat("x", all+1)), gzipped("hello")[:41],
	} {
		for name, r := range map[string]ignition.Resource{
			"plain": {Source: &source}, "compressed": {Source: &source, Compression: &kind}, "none": {},
			"hash":    {Source: &source, Verification: ignition.Verification{Hash: &hash}},
			"right":   {Source: &source, Verification: ignition.Verification{Hash: &right}, Compression: &kind},
			"wrong":   {Source: &source, Verification: ignition.Verification{Hash: &hash}, Compression: &kind},
			"unknown": {Source: &source, Verification: ignition.Verification{Hash: &unknown}, Compression: &kind},
		} {
			t.Run(fmt.Sprintf("%s %.40s %d", name, source, len(source)), func(t *testing.T) {
				one, other := ignition.NewRoom(each, all), ignition.NewRoom(each, all)
				for range 2 { // the second one may find the room taken
					_, want := ignition.Content(r, one)
					if got := ignition.CheckContent(r, other); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("%v, want %v", got, want)
					}
				}
			})
		}
	}
}
