package bootlab_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/worlds/bootlab"
)

// read returns the story of a recorded console, and its lines. The recordings are of a real first
// boot, without most of the other programs' lines. Lines that contain a text in skip are left out.
func read(t *testing.T, name string, skip ...string) (story *bootlab.Story, lines []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".console")
	if err != nil {
		t.Fatal(err)
	}
	story = &bootlab.Story{Tell: func(line string) { lines = append(lines, line) }}
	for line := range strings.Lines(string(text)) {
		if !slices.ContainsFunc(skip, func(part string) bool { return strings.Contains(line, part) }) {
			story.Line(strings.TrimSuffix(line, "\n"))
		}
	}
	return story, lines
}

// TestStory compares the lines selected from both consoles of a first boot with testdata/story.
func TestStory(t *testing.T) {
	golden, err := os.ReadFile("testdata/story")
	if err != nil {
		t.Fatal(err)
	}
	first, lines := read(t, "first")
	second, proof := read(t, "second")
	if got := strings.Join(append(lines, proof...), "\n") + "\n"; got != string(golden) {
		t.Errorf("the story is\n%s\nwant\n%s", got, golden)
	}
	if err := bootlab.CheckStories(first, second); err != nil {
		t.Error(err)
	}
}

// TestStoryLacksSomething checks that CheckStories notices missing lines.
func TestStoryLacksSomething(t *testing.T) {
	whole, _ := read(t, "first")
	proof, _ := read(t, "second")
	for _, lost := range []string{"pivot: ", "pivot: pull: ", "pivot: reboot: "} {
		first, _ := read(t, "first", lost)
		if err := bootlab.CheckStories(first, proof); err == nil || !strings.Contains(err.Error(), "first console") {
			t.Errorf("without %q: %v", lost, err)
		}
	}
	for lost, want := range map[string]string{"pivot: prove: ": "second console", "@@kubelet": "kubelet started"} {
		second, _ := read(t, "second", lost)
		if err := bootlab.CheckStories(whole, second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %q: %v", lost, err)
		}
	}
	if err := bootlab.CheckStories(proof, proof); err == nil {
		t.Error("the second console twice is no story")
	}
}
