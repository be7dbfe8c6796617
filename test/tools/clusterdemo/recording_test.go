package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/worlds/bootlab"
)

// recording returns the output of a real run.
func recording(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/output.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// TestRecording checks that the real run has claimed, in all acts, what the demonstration claims now.
func TestRecording(t *testing.T) {
	claim := regexp.MustCompile(`^(=== |ok |NOT)`)
	got := slices.DeleteFunc(recording(t), func(line string) bool { return !claim.MatchString(line) })
	if len(got) > 0 {
		got = got[1:] // the heading of what is built
	}
	var out bytes.Buffer
	claims := &bootlab.Claims{To: &out}
	for _, a := range acts() {
		heading(&out, a.title)
		a.claim(claims, true, 1)
		for _, node := range []string{"n1", "n2"} {
			a.claimOf(claims, node, images{"1", "2"}, good(a))
		}
	}
	want := slices.DeleteFunc(strings.Split(out.String(), "\n"), func(line string) bool { return line == "" })
	if !slices.Equal(got, want) {
		t.Errorf("the recording claims\n%s\nwant\n%s", strings.Join(got, "\n"), &out)
	}
}

// good returns what a machine should have after an act.
func good(a act) saw {
	s := saw{boots: a.boots, image: "1", file: "hello", proven: true}
	if a.ends == waits {
		s.image = ""
	}
	if a.changed {
		s.image, s.argument, s.file = "2", argument, "good day"
	}
	if a.limited {
		s.limit = limit
	}
	return s
}

// TestClaims: whatever a machine has wrong is not claimed to hold.
func TestClaims(t *testing.T) {
	for _, a := range acts() {
		for _, change := range []func(*saw){
			func(s *saw) { s.boots++ }, func(s *saw) { s.image = "other" }, func(s *saw) { s.proven = false },
			func(s *saw) { s.argument += "x" }, func(s *saw) { s.file = "" }, func(s *saw) { s.limit += "x" },
		} {
			s := good(a)
			if change(&s); a.ends != arrives && !s.proven { // nobody has asked for a proof, or the node has failed
				continue
			}
			claims := bootlab.Claims{To: io.Discard}
			if a.claimOf(&claims, "n1", images{"1", "2"}, s); claims.Failed != 1 {
				t.Errorf("%s: %d claims do not hold for %+v, want 1", a.title, claims.Failed, s)
			}
		}
		claims := bootlab.Claims{To: io.Discard}
		if a.claim(&claims, false, 2); claims.Failed != 2 {
			t.Errorf("%s: %d claims do not hold, want 2", a.title, claims.Failed)
		}
	}
}

// TestLasting: a status is shown again only if more has changed than numbers that always change.
func TestLasting(t *testing.T) {
	const before = "worker: updating, 0 of 2 nodes have the target\n  expected  about 3m: 3m a node\n  n1  Working   pull 42%, 812 MB   → target\n"
	same := "worker: updating, 0 of 2 nodes have the target\n  expected  about 2m: 3m a node\n  n1  Working   pull 7%, 1.2 GB     → target\n"
	if got := lasting(same); got != lasting(before) {
		t.Errorf("%q is shown after %q", got, lasting(before))
	}
	for _, other := range []string{strings.Replace(before, "0 of", "1 of", 1), strings.Replace(before, "pull", "plan", 1), strings.Replace(before, "n1", "n2", 1)} {
		if lasting(other) == lasting(before) {
			t.Errorf("%q is not shown", other)
		}
	}
}
