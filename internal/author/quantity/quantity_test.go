package quantity_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"machine-pivot/internal/author/quantity"
)

func amounts() []string {
	return []string{
		"0", "1", "400m", "0.4", ".4", "4.", "100m", "1500m", "1.5", "1k", "1000", "1000k", "1024", "1Ki", "1024Ki", "8G", "10Gi", "10k", "10Mi",
		"8192", "8193", "-1", "-8G", "+5", "1e3", "1E3", "12e6", "1e-3", "100e3", "0.5Gi", "1.5Ki", "0.5", "0.0001", "1n", "1u", "0.1n", "3.00001k",
		"1.0001Ki", "1023", "-1Ki", "-1023Ki", "1E", "2P", "1T", "1Ei", "007", "0m", "0Ki", "-0", "1.2345678901", "9223372036854775807", "1023m",
		"5e0", "1536Ki", "1048576Ki", "1.5Mi", "0.001Ki",
	}
}

func TestAsKubernetes(t *testing.T) {
	for _, in := range amounts() {
		same(t, in)
	}
	for _, in := range []string{"", " ", "1 k", "1K", "1ki", "1KB", "--1", "+-1", "1.2.3", "1-2", "1e", "1ee3", "0x1", "a", "1\n", "٣", "1,5", "1mm"} {
		if q, err := quantity.Parse(in); err == nil {
			t.Errorf("%q is taken as %s", in, q)
		}
		if q, err := resource.ParseQuantity(in); err == nil {
			t.Errorf("%q is refused, Kubernetes takes it as %s", in, q.String())
		}
	}
	// Kubernetes takes these, cut down or as 0.
	for _, in := range []string{"m", "Ki", "e3", ".", "-", "9223372036854775808", "100E", "1e100", "1e999", strings.Repeat("1", 100)} {
		if q, err := quantity.Parse(in); err == nil {
			t.Errorf("%q is taken as %s", in, q)
		}
	}
}

// same compares with Kubernetes; nothing if that refuses the amount.
func same(t *testing.T, in string) {
	t.Helper()
	want, errWant := resource.ParseQuantity(in)
	got, err := quantity.Parse(in)
	if err != nil || errWant != nil {
		t.Errorf("%q: %v, Kubernetes says %v", in, err, errWant)
		return
	}
	want.Add(resource.Quantity{}) // makes it forget how it was spelled
	if got.String() != want.String() || got.Sign() != want.Sign() {
		t.Errorf("%q is %s, %d; Kubernetes says %s, %d", in, got, got.Sign(), want.String(), want.Sign())
	}
	if want.Sign() < 0 {
		return // Kubernetes rounds them now up, now down
	}
	if got.Value() != want.Value() || want.CmpInt64(1<<50) < 0 && got.Milli() != want.MilliValue() {
		t.Errorf("%q is %d and %d thousandths, Kubernetes says %d and %d", in, got.Value(), got.Milli(), want.Value(), want.MilliValue())
	}
}

func TestCmp(t *testing.T) {
	for _, a := range amounts() {
		for _, b := range amounts() {
			x, errX := quantity.Parse(a)
			y, errY := quantity.Parse(b)
			if errX != nil || errY != nil {
				t.Fatal(errX, errY)
			}
			p, q := resource.MustParse(a), resource.MustParse(b)
			if x.Cmp(y) != p.Cmp(q) {
				t.Errorf("%s against %s: %d, Kubernetes says %d", a, b, x.Cmp(y), p.Cmp(q))
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, in := range amounts() {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if _, err := quantity.Parse(in); err == nil {
			same(t, in)
		}
	})
}
