package pinning_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"machine-pivot/internal/pinning"
)

// goodSets maps sets to their canonical form.
func goodSets() map[string]string {
	return map[string]string{
		"": "", "0": "0", "1": "1", "10": "10", "8191": "8191", "0,1": "0-1", "0-1": "0-1", "1-1": "1", "0-0": "0",
		"0-1,52-53": "0-1,52-53", "52-53,0-1": "0-1,52-53", "0,1,52,53": "0-1,52-53", "0-3,2-5": "0-5", "0-5,2-3": "0-5",
		"5,3,4": "3-5", "5,5,5": "5", "0,2,4,6": "0,2,4,6", "1,3,5,7-9": "1,3,5,7-9", "0-2,4": "0-2,4", "4,0-2": "0-2,4",
		"0-63": "0-63", "2-51,54-103": "2-51,54-103", "0-8191": "0-8191", "8190-8191": "8190-8191", "100-199,200": "100-200",
		"7,6,5,4,3,2,1,0": "0-7", "0-1,1-2,2-3": "0-3", "0-10,20-30,5-25": "0-30", "9,10,11": "9-11", "99-100": "99-100",
		"0,8191": "0,8191", "1-2,4-5,7-8": "1-2,4-5,7-8", "3-3,3-3": "3", "0-255": "0-255", "128-255,0-127": "0-255",
	}
}

// badSets returns texts that are not sets, or have CPUs that no machine has.
func badSets() []string {
	return []string{
		"3-1", "1-0", "8191-0", "-1", "-", "--", "0-", "0--1", "0-1-2", ",", ",0", "0,", "0,,1", "0-1,", ",,",
		" 0", "0 ", " ", "0 ,1", "0, 1", "0 - 1", "0\n", "\t0", "0\r\n", "0\x00", "\u00a00", "0;1", "0:1", "0/1",
		"0-3:1/2", "all", "N", "0-N", "a", "0-a", "0x1", "0b1", "0o1", "1_0", "1e1", "1.0", "١", "²",
		"+1", "007", "00", "0-01", "-0", "8192", "0-8192", "65536", "0-4294967295", "4294967296", "0-99999999999999999999",
		"99999999999999999999", "9223372036854775808", "*", "!0", "^0", "0-1^1", "[0-1]", `"0"`, "{0}", "0-1,,", "0..1",
		strings.Repeat("0-8191,", 100) + "0", strings.Repeat("9", 5000), strings.Repeat(",", 5000),
	}
}

func TestParseCPUSet(t *testing.T) {
	good, bad := goodSets(), badSets()
	if n := len(good) + len(bad); n < 60 {
		t.Errorf("only %d sets", n)
	}
	for in, want := range good {
		set, err := pinning.ParseCPUSet(in)
		if err != nil || set.String() != want {
			t.Errorf("ParseCPUSet(%q) = %q, %v, want %q", in, set, err, want)
		}
	}
	for _, in := range bad {
		set, err := pinning.ParseCPUSet(in)
		if err == nil {
			t.Errorf("ParseCPUSet(%.40q) = %q, want an error", in, set)
			continue
		}
		if text := err.Error(); len(text) > 500 || strings.ContainsAny(text, "\n\x00") {
			t.Errorf("ParseCPUSet(%.40q): the error is not one short line: %.200q", in, text)
		}
	}
}

// TestAsKubernetes compares each set that both parsers accept with the library that CRI-O and
// kubelet use. A set that only the library accepts must be in the list of sets that are
// rejected on purpose.
func TestAsKubernetes(t *testing.T) {
	compared := 0
	for in := range goodSets() {
		if sameAsKubernetes(t, in) {
			compared++
		}
	}
	if compared != len(goodSets()) {
		t.Errorf("the library takes %d of %d good sets", compared, len(goodSets()))
	}
	for _, in := range badSets() {
		if strings.Contains(in, "-4294967295") || strings.Contains(in, "-9999") || len(in) > 100 {
			continue // the library would expand it until memory is exhausted
		}
		_, err := cpuset.Parse(in)
		onPurpose := strings.Contains(in, "+") || strings.Contains(in, "00") || strings.Contains(in, "-01") || beyond(in)
		if err == nil && !onPurpose {
			t.Errorf("%q is refused, but the library takes it", in)
		}
	}
}

// beyond reports whether a set contains a number above MaxCPU.
func beyond(in string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(in, func(r rune) bool { return r < '0' || r > '9' }), func(s string) bool {
		n, err := strconv.Atoi(s)
		return err != nil || n > pinning.MaxCPU
	})
}

// sameAsKubernetes compares all properties of a set. It returns false if the library rejects
// the set.
func sameAsKubernetes(t *testing.T, in string) bool {
	t.Helper()
	want, err := cpuset.Parse(in)
	if err != nil {
		return false
	}
	got := mustSet(t, in)
	if got.String() != want.String() || got.Size() != want.Size() || !slices.Equal(got.List(), want.List()) || got.IsEmpty() != want.IsEmpty() {
		t.Errorf("%q is %q of %d, the library says %q of %d", in, got, got.Size(), want, want.Size())
	}
	return true
}

func TestSetOperationsAsKubernetes(t *testing.T) {
	for a := range goodSets() {
		for b := range goodSets() {
			x, y := mustSet(t, a), mustSet(t, b)
			p, q := mustKubernetes(t, a), mustKubernetes(t, b)
			for name, pair := range map[string][2]string{
				"union":        {x.Union(y).String(), p.Union(q).String()},
				"intersection": {x.Intersection(y).String(), p.Intersection(q).String()},
				"difference":   {x.Difference(y).String(), p.Difference(q).String()},
				"equal":        {strconv.FormatBool(x.Equal(y)), strconv.FormatBool(p.Equals(q))},
				"contains":     {strconv.FormatBool(x.Contains(7)), strconv.FormatBool(p.Contains(7))},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s of %q and %q is %q, the library says %q", name, a, b, pair[0], pair[1])
				}
			}
			if x.String() != mustSet(t, a).String() {
				t.Fatalf("%q was changed", a)
			}
		}
	}
}

func mustKubernetes(t *testing.T, in string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func mustSet(t testing.TB, s string) pinning.CPUSet {
	t.Helper()
	set, err := pinning.ParseCPUSet(s)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// naive parses a set in the simplest way, in the grammar of the kernel's lists without strides.
func naive(in string) (cpus map[int]bool, ok bool) {
	cpus = map[int]bool{}
	if in == "" {
		return cpus, true
	}
	for _, item := range strings.Split(in, ",") {
		var ends []int
		for _, text := range strings.Split(item, "-") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 || n > pinning.MaxCPU || strconv.Itoa(n) != text {
				return nil, false
			}
			ends = append(ends, n)
		}
		if len(ends) > 2 || ends[len(ends)-1] < ends[0] {
			return nil, false
		}
		for n := ends[0]; n <= ends[len(ends)-1]; n++ {
			cpus[n] = true
		}
	}
	return cpus, true
}

func FuzzParseCPUSet(f *testing.F) {
	for _, seed := range []string{"", "0-1,52-53", "3-1,", "+1", "007", "0-8191", "8192", "5,3,4-9", "-0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if len(in) > 30 {
			return // longer ones may be rejected for repeating CPUs
		}
		set, err := pinning.ParseCPUSet(in)
		want, ok := naive(in)
		if (err == nil) != ok {
			t.Fatalf("%q: %v, the model says %v", in, err, ok)
		}
		if err != nil {
			return
		}
		again, err := pinning.ParseCPUSet(set.String())
		if err != nil || !again.Equal(set) {
			t.Errorf("%q gives %q, which gives %q, %v", in, set, again, err)
		}
		if set.Size() != len(want) || slices.ContainsFunc(set.List(), func(n int) bool { return !want[n] }) {
			t.Errorf("%q gives %q, the model %v", in, set, want)
		}
		if !sameAsKubernetes(t, in) {
			t.Errorf("%q is taken, but not by the library of CRI-O and kubelet", in)
		}
	})
}
