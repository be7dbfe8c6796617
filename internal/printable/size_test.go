package printable_test

import (
	"math"
	"testing"

	"machine-pivot/internal/printable"
)

// TestSize: sizes have three digits and a decimal unit, and two that differ look different.
func TestSize(t *testing.T) {
	for _, c := range []struct {
		bytes  int64
		others []int64
		want   string
	}{
		{0, nil, "0 B"}, {1, nil, "1 B"}, {999, nil, "999 B"}, {1000, nil, "1.0 kB"}, {6784, nil, "6.8 kB"}, {99_949, nil, "99.9 kB"}, {99_950, nil, "100 kB"},
		{999_499, nil, "999 kB"}, {999_500, nil, "1.0 MB"}, {340_000_000, nil, "340 MB"}, {1_234_567_890, nil, "1.2 GB"}, {68 << 30, nil, "73.0 GB"},
		{1_200_000_000_000, nil, "1.2 TB"}, {math.MaxInt64, nil, "9.2 EB"}, {math.MinInt64, nil, "-9.2 EB"}, {-1500, nil, "-1.5 kB"},
		{1_240_000_000, []int64{1_230_000_000}, "1.24 GB"}, {1_230_000_000, []int64{1_240_000_000}, "1.23 GB"},
		{1_200_000_000, []int64{1_200_000_000}, "1.2 GB"}, {1_200_000_001, []int64{1_200_000_000}, "1.200000001 GB"},
		{math.MaxInt64, []int64{math.MaxInt64 - 1}, "9223372036854775807 B"}, {999_999_999, []int64{1_000_000_000}, "999.999999 MB"},
		{7, []int64{19}, "7 B"},
	} {
		if got := printable.Size(c.bytes, c.others...); got != c.want {
			t.Errorf("Size(%d, %d) is %q, want %q", c.bytes, c.others, got, c.want)
		}
	}
	for n := int64(1); n > 0 && n < math.MaxInt64/3; n = n*3/2 + 1 {
		for _, other := range []int64{n + 1, n - 1, n + n/1000 + 1} {
			if a, b := printable.Size(n, other), printable.Size(other, n); a == b {
				t.Errorf("%d and %d are both %s", n, other, a)
			}
		}
	}
}
