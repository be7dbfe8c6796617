package main

import (
	"strings"
	"testing"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		name   string
		stream string
		want   totals
		shown  []string
	}{
		{
			name: "a test with subtests counts by them",
			stream: `{"Action":"run","Package":"p","Test":"A"}
{"Action":"run","Package":"p","Test":"A/x"}
{"Action":"run","Package":"p","Test":"A/y"}
{"Action":"output","Package":"p","Test":"A/y","Output":"=== RUN   A/y\n"}
{"Action":"output","Package":"p","Test":"A/y","Output":"    a_test.go:1: wrong\n"}
{"Action":"pass","Package":"p","Test":"A/x"}
{"Action":"fail","Package":"p","Test":"A/y"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p","Elapsed":1.5}`,
			want:  totals{passed: 1, failed: 1},
			shown: []string{"--- FAIL p A/y", "a_test.go:1: wrong", "FAIL  p 1.5s (1 passed, 1 failed, 0 skipped)"},
		},
		{
			name: "a parent that fails by itself counts",
			stream: `{"Action":"pass","Package":"p","Test":"A/x"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}`,
			want: totals{passed: 1, failed: 1},
		},
		{
			name: "a skip gives its reason",
			stream: `{"Action":"output","Package":"p","Test":"A","Output":"    a_test.go:9: no qemu\n"}
{"Action":"output","Package":"p","Test":"A","Output":"--- SKIP: A (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"A"}
{"Action":"pass","Package":"p"}`,
			want:  totals{skipped: 1},
			shown: []string{"--- SKIP p A: a_test.go:9: no qemu", "ok "},
		},
		{
			name: "a package that does not build is a failure",
			stream: `{"ImportPath":"p [p.test]","Action":"build-output","Output":"a.go:1: undefined: x\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
			want:  totals{failed: 1},
			shown: []string{"p does not build", "undefined: x"},
		},
		{
			name: "a package that fails outside of its tests is a failure",
			stream: `{"Action":"pass","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Output":"TestMain: no\n"}
{"Action":"fail","Package":"p"}`,
			want:  totals{passed: 1, failed: 1},
			shown: []string{"TestMain: no"},
		},
		{
			name: "a test that the end of the process cut short is a failure",
			stream: `{"Action":"run","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Test":"A","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}`,
			want:  totals{failed: 1},
			shown: []string{"A did not end", "panic: test timed out"},
		},
		{
			name:   "a stream cut short is a failure",
			stream: `{"Action":"run","Package":"p","Test":"A"}`,
			want:   totals{failed: 1},
		},
		{
			name: "a package without tests is not counted, foreign lines are shown",
			stream: `go: downloading x
{"Action":"output","Package":"p","Output":"?  p [no test files]\n"}
{"Action":"skip","Package":"p"}`,
			shown: []string{"go: downloading x"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			s, err := summarize(strings.NewReader(c.stream), &out)
			if err != nil || s.totals != c.want {
				t.Errorf("got %+v, %v; want %+v\n%s", s.totals, err, c.want, out.String())
			}
			for _, s := range c.shown {
				if !strings.Contains(out.String(), s) {
					t.Errorf("%q is not shown in:\n%s", s, out.String())
				}
			}
		})
	}
}
