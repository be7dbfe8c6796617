package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/pinning"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// sample returns the README's excerpt of the demonstration.
func sample(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "An excerpt of its output:\n\n```text\n")
	block, _, closed := strings.Cut(after, "\n```")
	if !found || !closed {
		t.Fatal("the README has no sample of the demonstration")
	}
	return strings.Split(block, "\n")
}

// TestReadme checks that each line of the README's excerpt is in the output of the demonstration,
// in order. The consoles are recordings of a real first boot. Parts that differ between runs are
// ignored.
func TestReadme(t *testing.T) {
	first := &vm.BootResult{Exit: vm.Rebooted, Duration: 49 * time.Second}
	said := []string{served("10.0.2.2:1/os/derived@sha256:"+strings.Repeat("0", 64), 9, 3), "=== " + powerOn}
	said = append(said, console(t, "first")...)
	said = append(said, "=== "+powerOnAgain(first))
	said = append(said, console(t, "second")...)
	said = append(said, "=== "+proven)
	said = append(said, proof(t, first)...)
	said = append(said, laterActs(t)...)
	for i := range said {
		said[i] = timeless(said[i])
	}
	if lines := sample(t); timeless(lines[0]) != said[0] {
		t.Errorf("the README begins with %q, not with the image's layers", lines[0])
	}
	for _, line := range sample(t) {
		i := slices.Index(said, timeless(line))
		if i < 0 {
			t.Fatalf("the demonstration does not say %q, or not there: %q", line, said)
		}
		said = said[i+1:]
	}
}

// timeless removes times, ports, image names and checksums from a line.
func timeless(line string) string {
	for _, differs := range [][2]string{
		{`^ *[0-9.]+ s  `, "T "}, {`after [0-9]+ s`, "after T"}, {`\[ *[0-9.]+\] echo\[[0-9]+\]`, "echo"},
		{`10\.0\.2\.2:[0-9]+/os/[a-z-]+@`, "IMAGE@"}, {`[0-9a-f]{12}([0-9a-f]{52}|…)`, "CHECKSUM"},
	} {
		line = regexp.MustCompile(differs[0]).ReplaceAllString(line, differs[1])
	}
	return line
}

// console returns the lines that are printed for a recorded power-on.
func console(t *testing.T, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../worlds/bootlab/testdata/" + name + ".console")
	if err != nil {
		t.Fatal(err)
	}
	story := bootlab.Story{Tell: func(line string) { lines = append(lines, timed(0, line)) }}
	for line := range strings.Lines(string(text)) {
		story.Line(strings.TrimSuffix(line, "\n"))
	}
	return lines
}

// proof returns the output for two successful boots.
func proof(t *testing.T, first *vm.BootResult) []string {
	t.Helper()
	set, err := pinning.ParseCPUSet("0")
	if err != nil {
		t.Fatal(err)
	}
	want := bootlab.Want{Kargs: []string{"nosmt loglevel=7"}, Pinning: pinning.Workloads{pinning.Management: set}}
	second := &vm.BootResult{Exit: vm.PoweredOff, Serial: []vm.SerialLine{{Text: bootlab.DerivedSays}}, Reported: []string{report(t, want)}}
	var out bytes.Buffer
	if err := prove(&out, &bootlab.Claims{To: &out}, want, first, second); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// laterActs returns the output for successful acts on the machine of the first one.
func laterActs(t *testing.T) []string {
	t.Helper()
	live := map[string]string{"file": "hello", "process": "7", "service": "7 read hello", "image": "1", "unit": "inactive", "verify": "same"}
	whole := map[string]string{"image": "2", "argument": argument, "unit": "active", "verify": "same"}
	back := map[string]string{"image": "1", "error": "the new system has failed its trial of 1s", "verify": "same"}
	var out bytes.Buffer
	claims := &bootlab.Claims{To: &out}
	acts := append(trialSteps(), dayTwoSteps()...)
	for i, said := range []map[string]string{live, live, back, live, whole, live} {
		heading(&out, acts[i].title)
		acts[i].claim(claims, said, live)
	}
	if err := claims.Err(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// report returns the report of a guest that has reached the wanted state.
func report(t *testing.T, want bootlab.Want) string {
	t.Helper()
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	r := vm.Report{Version: "B.2", Cmdline: "quiet nosmt loglevel=7", Closed: true, Kubelet: vm.Unit{ActiveState: "active"}}
	for _, f := range want.PinningFiles() {
		r.Files = append(r.Files, vm.ReportedFile{Path: f.Path, Mode: "644", SHA256: fmt.Sprintf("%x", sha256.Sum256(f.Content))})
	}
	fields := map[string]any{}
	if err := json.Unmarshal(encode(r), &fields); err != nil {
		t.Fatal(err)
	}
	fields["Status"] = encode(vm.Status{Phase: "done", Attempt: 1}) // base64 in JSON
	return "@@report " + string(encode(fields))
}
