package figures

import "testing"

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"2.5GB": 2_500_000_000, "150MB": 150_000_000, "3000000": 3_000_000} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%s: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "many", "1kB", "-1GB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q: got %d", text, got)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []int
		want   int
	}{{[]int{3}, 3}, {[]int{9, 1, 5}, 5}, {[]int{4, 2, 8, 6}, 4}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("%v: got %d, want %d", c.values, got, c.want)
		}
	}
}
