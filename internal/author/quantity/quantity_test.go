package quantity_test

import (
	"math/big"
	"strings"
	"testing"

	"machine-pivot/internal/author/quantity"
)

// refused returns texts that are not amounts, including those that Kubernetes truncates, reads as
// 0, or computes for hours.
func refused() []string {
	return []string{
		"", " ", "1 k", "1K", "1ki", "1KB", "--1", "+-1", "1.2.3", "1-2", "1e", "1ee3", "0x1", "a", "1\n", "٣", "1,5", "1mm", // Kubernetes refuses these too
		"m", "Ki", "e3", ".", "-", "9223372036854775808", "-9223372036854775808", "100E", "1e100", "1e999", "8Ei", "9000Pi", "-8Ei", "9999999999999999Ki",
		"1e2147483647", "1e-2147483647", "1E2000000000", strings.Repeat("1", 100),
	}
}

func TestRefused(t *testing.T) {
	for _, in := range refused() {
		if q, err := quantity.Parse(in); err == nil || !strings.HasPrefix(err.Error(), "cannot parse quantity \"") {
			t.Errorf("%q is taken as %s (%v)", in, q.String(), err)
		}
	}
}

// TestBounds: amounts within 64 bits are exact.
func TestBounds(t *testing.T) {
	for in, want := range map[string]int64{
		"9223372036854775807": 1<<63 - 1, "7Ei": 7 << 60, "9E": 9e18, "9e18": 9e18, "0.000000001": 1, "1n": 1, "0.1n": 1, "1e-999": 1,
	} {
		if q, err := quantity.Parse(in); err != nil || q.Value() != want {
			t.Errorf("%s is %d (%v), want %d", in, q.Value(), err, want)
		}
	}
}

// Every accepted amount fits in 64 bits, and its canonical form is the same amount.
func FuzzParse(f *testing.F) {
	for _, in := range append(refused(), "400m", "1.5Gi", "12e6", "-8G", "+5", "0.1n", "1e-999") {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		q, err := quantity.Parse(in)
		if err != nil {
			return
		}
		exact, ok := new(big.Rat).SetString(q.AsDec().String())
		if !ok || exact.Abs(exact).Cmp(new(big.Rat).SetInt64(1<<63-1)) > 0 {
			t.Errorf("%q is %s", in, q.String())
		}
		if again, err := quantity.Parse(q.String()); err != nil || again.Cmp(q) != 0 {
			t.Errorf("%q is %s, and that is %s (%v)", in, q.String(), again.String(), err)
		}
	})
}
