package lab_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/lab"
)

// read tells a console that was recorded: that of a real first boot, most of what
// others said left out.
func read(t *testing.T, name string, skip ...string) (story *lab.Story, told []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".console")
	if err != nil {
		t.Fatal(err)
	}
	story = &lab.Story{Tell: func(line string) { told = append(told, line) }}
	for line := range strings.Lines(string(text)) {
		if !slices.ContainsFunc(skip, func(part string) bool { return strings.Contains(line, part) }) {
			story.Line(strings.TrimSuffix(line, "\n"))
		}
	}
	return story, told
}

// TestStory holds what is picked from both consoles of a first boot against what is
// to be shown.
func TestStory(t *testing.T) {
	golden, err := os.ReadFile("testdata/story")
	if err != nil {
		t.Fatal(err)
	}
	first, told := read(t, "first")
	second, proof := read(t, "second")
	if got := strings.Join(append(told, proof...), "\n") + "\n"; got != string(golden) {
		t.Errorf("the story is\n%s\nwant\n%s", got, golden)
	}
	if err := lab.CheckStories(first, second); err != nil {
		t.Error(err)
	}
}

// TestStoryLacksSomething: consoles without some of the lines are noticed.
func TestStoryLacksSomething(t *testing.T) {
	whole, _ := read(t, "first")
	proof, _ := read(t, "second")
	for _, lost := range []string{"pivot: ", "pivot: pull: ", "pivot: reboot: "} {
		first, _ := read(t, "first", lost)
		if err := lab.CheckStories(first, proof); err == nil || !strings.Contains(err.Error(), "first console") {
			t.Errorf("without %q: %v", lost, err)
		}
	}
	for lost, want := range map[string]string{"pivot: prove: ": "second console", "@@kubelet": "kubelet started"} {
		second, _ := read(t, "second", lost)
		if err := lab.CheckStories(whole, second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %q: %v", lost, err)
		}
	}
	if err := lab.CheckStories(proof, proof); err == nil {
		t.Error("the second console twice is no story")
	}
}
