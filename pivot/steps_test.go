package pivot_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/pivot"
)

// states is the document with the tables of this package.
const states = "../docs/dev/states.md"

// generated compares the table that follows a comment "<!-- NAME -->" in states with rows, or replaces it with
// UPDATE_GOLDEN=1.
func generated(t *testing.T, name string, rows []string) {
	t.Helper()
	data, err := os.ReadFile(states)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(data), "<!-- "+name+" -->\n")
	if !found {
		t.Fatalf("%s has no table %s", states, name)
	}
	is, rest, _ := strings.Cut(after, "\n\n")
	want := strings.Join(rows, "\n")
	if is == want {
		return
	}
	if os.Getenv("UPDATE_GOLDEN") == "" {
		t.Fatalf("%s, table %s:\n%s\nUPDATE_GOLDEN=1 writes it:\n%s", states, name, is, want)
	}
	if err := os.WriteFile(states, []byte(before+"<!-- "+name+" -->\n"+want+"\n\n"+rest), 0o644); err != nil {
		t.Fatal(err)
	}
}

// row returns a row of a table.
func tableRow(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |" }

// TestStepsTable: docs/dev/states.md shows the order of a change as it is.
func TestStepsTable(t *testing.T) {
	rows := []string{tableRow("step", "shown as", "does", "phase", "writes at most", "a signal", "if it fails"), "|---|---|---|---|---|---|---|"}
	for _, s := range pivot.Steps() {
		shown, phase := s.Step, string(s.Phase)
		if s.Shown != "" {
			shown = s.Shown
		}
		rows = append(rows, tableRow(string(s.Step), string(shown), s.Does, phase, s.Writes.String(), map[bool]string{true: "ends it", false: "waits"}[s.Stops], string(s.Undo)))
	}
	generated(t, "steps", rows)
}

// TestStepsOrder: no step before the commit changes the next boot, and no signal interrupts the commit. A step before it
// that fails is undone, or the next run continues from there.
func TestStepsOrder(t *testing.T) {
	all := pivot.Steps()
	commit := slices.IndexFunc(all, func(s pivot.Info) bool { return s.Step == pivot.StepCommit })
	for i, s := range all {
		switch {
		case i < commit && s.Writes >= pivot.WritesNextBoot:
			t.Errorf("step %s may change the next boot before the commit", s.Step)
		case i < commit && s.Writes == pivot.WritesDeployment && s.Undo != pivot.UndoDiscard:
			t.Errorf("what step %s has deployed stays", s.Step)
		case i < commit && s.Undo == pivot.UndoNone:
			t.Errorf("step %s cannot be undone before the commit", s.Step)
		case i == commit && s.Stops:
			t.Error("a signal ends the commit")
		case s.Shown != "" && !slices.ContainsFunc(all, func(o pivot.Info) bool { return o.Step == s.Shown && o.Shown == "" }):
			t.Errorf("step %s is shown as %s, which is no step", s.Step, s.Shown)
		case slices.ContainsFunc(all[:i], func(o pivot.Info) bool { return o.Step == s.Step }):
			t.Errorf("step %s is there twice", s.Step)
		}
	}
}

// TestStepsInSchema: the schema of the status names the steps that are shown.
func TestStepsInSchema(t *testing.T) {
	data, err := os.ReadFile("../docs/schema/Status.json")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range pivot.Steps() {
		if s.Shown == "" {
			names = append(names, string(s.Step))
		}
	}
	last := len(names) - 1
	if want := fmt.Sprintf(`"of the step: %s or %s"`, strings.Join(names[:last], ", "), names[last]); !strings.Contains(string(data), want) {
		t.Errorf("docs/schema/Status.json does not say %s", want)
	}
}
