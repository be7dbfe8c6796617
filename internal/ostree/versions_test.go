package ostree

import "testing"

// TestCompareVersions: the order is that of the examples in strverscmp(3), and of versions that others write.
func TestCompareVersions(t *testing.T) {
	for _, ordered := range [][]string{
		{"000", "00", "01", "010", "09", "0", "1", "9", "10"},
		{"", "1", "2", "10", "99", "100"},
		{" 2", "1", "10a", "10b", "11a", "a"},
		{"6.1.9", "6.1.10", "6.2", "6.10"},
		{"1.001", "1.01", "1.0", "1.1"},
	} {
		for i, a := range ordered {
			for j, b := range ordered {
				if got := compareVersions(a, b); got < 0 != (i < j) || got > 0 != (i > j) {
					t.Errorf("%q and %q: %d", a, b, got)
				}
			}
		}
	}
}
