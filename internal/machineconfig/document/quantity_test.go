package document_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"machine-pivot/internal/machineconfig/document"
)

// refusedQuantities returns texts that are not amounts, including those that Kubernetes truncates, reads as
// 0, or computes for hours.
func refusedQuantities() []string {
	return []string{
		"", " ", "1 k", "1K", "1ki", "1KB", "--1", "+-1", "1.2.3", "1-2", "1e", "1ee3", "0x1", "a", "1\n", "٣", "1,5", "1mm", // Kubernetes refuses these too
		"m", "Ki", "e3", ".", "-", "9223372036854775808", "-9223372036854775808", "100E", "1e100", "1e999", "8Ei", "9000Pi", "-8Ei", "9999999999999999Ki",
		"1e2147483647", "1e-2147483647", "1E2000000000", strings.Repeat("1", 100),
	}
}

func TestRefusedQuantities(t *testing.T) {
	for _, in := range refusedQuantities() {
		if q, err := document.ParseQuantity(in); err == nil || !strings.HasPrefix(err.Error(), "cannot parse quantity \"") {
			t.Errorf("%q is taken as %s (%v)", in, q.String(), err)
		}
	}
}

// TestBoundsOfQuantities: amounts within 64 bits are exact.
func TestBoundsOfQuantities(t *testing.T) {
	for in, want := range map[string]int64{
		"9223372036854775807": 1<<63 - 1, "7Ei": 7 << 60, "9E": 9e18, "9e18": 9e18, "0.000000001": 1, "1n": 1, "0.1n": 1, "1e-999": 1,
	} {
		if q, err := document.ParseQuantity(in); err != nil || q.Value() != want {
			t.Errorf("%s is %d (%v), want %d", in, q.Value(), err, want)
		}
	}
}

// Every accepted amount is what it is in Kubernetes, and its canonical form is the same amount.
func FuzzQuantity(f *testing.F) {
	for _, in := range append(refusedQuantities(), acceptedQuantities()...) {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		q, err := document.ParseQuantity(in)
		if err != nil {
			return
		}
		compareQuantity(t, in, q)
		if again, err := document.ParseQuantity(q.String()); err != nil || again.Cmp(q) != 0 {
			t.Errorf("%q is %s, and that is %s (%v)", in, q.String(), again.String(), err)
		}
	})
}

// acceptedQuantities returns amounts of each form.
func acceptedQuantities() []string {
	return []string{
		"0", "-0", "+5", "5.", ".5", "0.1n", "1n", "1u", "400m", "-400m", "1500m", "0.1", "1", "1000", "1200", "12000", "123k", "1.5M", "-8G", "1T", "1P", "9E",
		"0Ki", "0.5Ki", "1Ki", "1023Ki", "1024Ki", "1.5Gi", "0.1Ki", "-1Mi", "1Ti", "1Pi", "7Ei", "1000Ki",
		"0e3", "1e3", "12e6", "1E-3", "1e-9", "1e-999", "1.5e1", "100e1", "1e18", "9223372036854775807", "9.2e18", "0.0000000001", "-0.0000000001", "1.0000000001",
	}
}

// TestQuantitiesOfKubernetes: the accepted amounts are those of Kubernetes.
func TestQuantitiesOfKubernetes(t *testing.T) {
	for _, in := range acceptedQuantities() {
		q, err := document.ParseQuantity(in)
		if err != nil {
			t.Error(err)
			continue
		}
		compareQuantity(t, in, q)
		for _, other := range acceptedQuantities() {
			o, _ := document.ParseQuantity(other)
			if want := resource.MustParse(in); q.Cmp(o) != want.Cmp(resource.MustParse(other)) {
				t.Errorf("%q and %q compare as %d", in, other, q.Cmp(o))
			}
		}
	}
}

// compareQuantity compares an amount with what Kubernetes takes the text for. It leaves out the values of negative
// amounts, which Kubernetes rounds in either direction, and thousandths beyond 64 bits.
func compareQuantity(t *testing.T, in string, q document.Quantity) {
	t.Helper()
	want, err := resource.ParseQuantity(in)
	if err != nil {
		t.Errorf("Kubernetes refuses %q, which is %s: %v", in, q, err)
		return
	}
	want.Add(resource.Quantity{}) // drops the text, which String would return
	if q.String() != want.String() || q.Sign() != want.Sign() {
		t.Errorf("%q is %s (%d), and %s (%d) in Kubernetes", in, q, q.Sign(), want.String(), want.Sign())
	}
	if q.Sign() >= 0 && q.Value() != want.Value() {
		t.Errorf("%q is %d, and %d in Kubernetes", in, q.Value(), want.Value())
	}
	if q.Sign() >= 0 && q.Value() < 1<<53 && q.MilliValue() != want.MilliValue() {
		t.Errorf("%q is %d thousandths, and %d in Kubernetes", in, q.MilliValue(), want.MilliValue())
	}
}
