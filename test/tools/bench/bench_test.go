package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/tools/machinefiles"
	"machine-pivot/test/tools/need"
)

// TestMain lets the test binary run the child processes of the benchmark.
func TestMain(m *testing.M) {
	mine, err := asChild(context.Background(), os.Args[1:])
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case !mine:
		os.Exit(m.Run())
	}
}

// TestShort runs a small benchmark and checks the figures that do not depend on the load of the
// machine.
func TestShort(t *testing.T) { checkShort(t, false) }

// TestShortWithRivals has podman and skopeo, too. It is part of "make nightly".
func TestShortWithRivals(t *testing.T) { checkShort(t, true) }

// checkShort runs a small benchmark and checks each of its results.
func checkShort(t *testing.T, rivals bool) {
	t.Helper()
	if testing.Short() {
		t.Skip("imports some GB")
	}
	need.Ostree(t)
	s := small(t)
	s.rivals = rivals
	r, err := run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range r.Results {
		t.Run(one.Image+" by "+one.Contender, func(t *testing.T) {
			if one.Unavailable != "" {
				need.Lacking(t, one.Unavailable)
			}
			one.check(t, r)
		})
	}
	t.Log(text(t, r))
}

// small are the settings of a small benchmark, with the same images on each machine.
func small(t *testing.T) settings {
	t.Helper()
	s := settings{dir: diskDir, pivot: builtPivot(t), from: []string{filepath.Join(t.TempDir(), "files")}, files: 600, bytes: 20e6, rounds: 1, seed: 1, link: &link{}, log: io.Discard}
	if err := machinefiles.Generate(s.from[0], 2*s.files, 2*s.bytes, s.seed); err != nil {
		t.Fatal(err)
	}
	return s
}

// check checks the plausibility of the figures. verify has already checked that the contender
// imported the whole commit.
func (one result) check(t *testing.T, r *report) {
	m := one.Median
	if m.Wall <= 0 || m.CPU <= 0 || m.Peak < 1e6 {
		t.Errorf("used %.2f s, %.2f s of CPU, %d bytes of memory", m.Wall, m.CPU, m.Peak)
	}
	if one.Contender == rehearsing { // what is in the repository was imported before
		return
	}
	if m.Written < m.Objects.Bytes {
		t.Errorf("left %d bytes of objects with %d bytes written", m.Objects.Bytes, m.Written)
	}
	if one.Image == contentsImage {
		return
	}
	// That no other layers are fetched.
	i := r.image(one.Image)
	wanted := i.Bytes
	if i.Name == updatedImage { // only here the repository already has another image
		wanted = i.New
	}
	most := wanted + i.Bytes/50
	if one.Contender == afterDeployment || i.Name == spreadImage { // parts of layers, and in a small image more for their tables
		wanted, most = i.Bytes/50, i.Bytes/10
	}
	if fetched := m.Fetched; fetched < wanted || fetched > most {
		t.Errorf("fetched %d bytes of an image of %d, where %d to %d are not there", fetched, i.Bytes, wanted, most)
	}
	const requests = 64 << 10 // and progress: they do not depend on the size of the objects
	if share := ratio(m.Handed-requests, m.Objects.Bytes); one.Contender == "pivot" && share > 1.05 {
		t.Errorf("wrote %.3f times the new objects", share)
	}
}

// text returns the report as text, after a round trip through JSON.
func text(t *testing.T, r *report) string {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again report
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := again.print(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestMedians(t *testing.T) {
	samples := []sample{
		{Wall: 3, CPU: 1, Phases: []usage{{Phase: "slow"}}},
		{Wall: 1, CPU: 3, Phases: []usage{{Phase: "fast"}}},
		{Wall: 2, CPU: 2.5, Phases: []usage{{Phase: "middle"}}},
	}
	if m := medians(samples); m.Wall != 2 || m.CPU != 2.5 || m.Phases[0].Phase != "middle" {
		t.Errorf("got %+v", m)
	}
	if m := medians(samples[:2]); m.Wall != 1 || m.Phases[0].Phase != "fast" {
		t.Errorf("of two: got %+v", m)
	}
	if got, want := spread(samples), "2.00 (1.00-3.00)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseLink(t *testing.T) {
	for text, want := range map[string]linkFacts{
		"100Mb/s,20ms": {Rate: 12_500_000, Latency: 20 * time.Millisecond}, "200ms": {Latency: 200 * time.Millisecond}, "1000Mb/s": {Rate: 125_000_000}, "1Gb/s,1ms": {Rate: 125_000_000, Latency: time.Millisecond},
	} {
		if got, err := parseLink(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "fast", "0Mb/s", "100Mb/s,soon", "5b/s", "1MGb/s", "Gb/s"} {
		if got, err := parseLink(text); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

// TestLink sends data over a link. It may take longer than the link needs, never less.
func TestLink(t *testing.T) {
	server, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	sent := bytes.Repeat([]byte("pivot"), 100_000)
	go func() {
		if c, err := server.Accept(); err == nil {
			_, _ = io.ReadFull(c, make([]byte, 1)) // the client checks what it gets
			_, _ = c.Write(sent)
			_ = c.Close()
		}
	}()
	l := &link{linkFacts: linkFacts{Rate: 5_000_000, Latency: 50 * time.Millisecond}}
	port, err := l.start(server.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	start := time.Now()
	c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes arrived, %v", len(got), err)
	}
	if took, least := time.Since(start).Seconds(), l.transfer(int64(len(sent))); took < least {
		t.Errorf("took %.3f s, less than %.3f", took, least)
	}
}

func TestCompareRatios(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ratios.json")
	if err := (ratios{"a": 1, "b": 2}).write(path); err != nil {
		t.Fatal(err)
	}
	if err := (ratios{"a": 1.1, "b": 1, "c": 9}).compare(path); err != nil {
		t.Error(err)
	}
	err := (ratios{"a": 1.2}).compare(path)
	if err == nil || err.Error() != "a: 1.200, recorded 1.000\nb: not measured" {
		t.Errorf("got %v", err)
	}
}

// TestLeastOfRounds: a round that was disturbed, or that Go's collector ended at its largest, changes no ratio.
func TestLeastOfRounds(t *testing.T) {
	r := &report{
		Images: []image{{Name: "an image"}},
		Results: []result{
			{Contender: "pivot", Image: "an image", Samples: []sample{{CPU: 2, Peak: 48e6}, {CPU: 3, Peak: 40e6}}, Median: sample{Wall: 1, CPU: 2.5, Peak: 44e6}},
			{Contender: "floor", Image: "an image", Samples: []sample{{CPU: 9}, {CPU: 1}}},
		},
	}
	got := r.ratios()
	if memory, cpu := got["peak memory in MB, an image"], got["CPU time, an image, of the floor's"]; memory != 40 || cpu != 2 {
		t.Errorf("memory %v, CPU %v; want 40 and 2", memory, cpu)
	}
}
