package ignition_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig/ignition"
)

// TestCheckContent: for a resource of a valid config, CheckContent finds what Content finds.
func TestCheckContent(t *testing.T) {
	const each, all = 40, 60
	gzip, hash := "gzip", "sha256-"+strings.Repeat("0", 64)
	for _, source := range []string{
		"", "data:,", "data:,abc", "data:,a%20b%2Cc", "data:text/plain;charset=utf-8;base64,aGVsbG8=", "data:;base64,aGk=", "data:;base64,YQ==",
		"data:," + strings.Repeat("x", each), "data:," + strings.Repeat("x", each+1), "data:," + strings.Repeat("%20", each), "data:," + strings.Repeat("%20", each+1),
		"data:;base64," + strings.Repeat("YWJj", each/3), "data:;base64," + strings.Repeat("YWJj", each), "https://example.com/a", "data:;base64,H4sIAAAAAAAAA8vIBACsKpPYAgAAAA==",
	} {
		for name, r := range map[string]ignition.Resource{
			"plain": {Source: &source}, "compressed": {Source: &source, Compression: &gzip}, "none": {},
			"hash": {Source: &source, Verification: ignition.Verification{Hash: &hash}},
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
