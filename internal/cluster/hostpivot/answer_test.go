package hostpivot_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// writeStatus writes the status file of a run below a root directory, as pivot does.
func writeStatus(root string) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	r := &status.Reporter{Root: root, Log: log, Notify: func(string) {}, Now: time.Now}
	r.Emit(pivot.Event{
		Kind: pivot.EventProgressed, Step: pivot.StepPull, Amount: pivot.Amount{Done: 42, Total: 100},
		Journal: pivot.JournalContent{Phase: pivot.PhaseApplying, Phases: []pivot.Duration{{Name: string(pivot.StepPull), Bytes: 7}}},
	})
}

// of returns a function that answers with a status, and counts.
func of(s hostpivot.Status, err error, count *int) func() (hostpivot.Status, error) {
	return func() (hostpivot.Status, error) {
		*count++
		return s, err
	}
}

// TestStatusDuringARun: what the file of a run does not know is kept from the last answer of pivot status. Each
// field of Status is either progress of the run, or kept: a new one has to be decided here.
func TestStatusDuringARun(t *testing.T) {
	ofRun := map[string]bool{
		"Step": true, "Percent": true, "Phases": true,
		"Phase": false, "Booted": false, "Pending": false, "MachineConfig": false, "Downloaded": false, "Error": false,
	}
	root := t.TempDir()
	writeStatus(root)
	data, err := os.ReadFile(filepath.Join(root, "run/pivot/status.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file, full hostpivot.Status
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	fill(t, reflect.ValueOf(&full).Elem())
	var asked, read int
	var answer hostpivot.Answer
	for range 2 {
		if got, err := answer.Status("1", nil, of(full, nil, &asked)); err != nil || !reflect.DeepEqual(got, full) || asked == 0 {
			t.Errorf("without a run: %+v, %v", got, err)
		}
	}
	asked = 0
	got, err := answer.Status("1", of(file, nil, &read), of(full, nil, &asked))
	if err != nil || asked > 0 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	values, files, fulls := reflect.ValueOf(got), reflect.ValueOf(file), reflect.ValueOf(full)
	for i := range values.NumField() {
		name := values.Type().Field(i).Name
		progress, decided := ofRun[name]
		want := fulls.Field(i)
		if progress {
			want = files.Field(i)
		}
		if !decided || reflect.DeepEqual(fulls.Field(i).Interface(), files.Field(i).Interface()) || !reflect.DeepEqual(values.Field(i).Interface(), want.Interface()) {
			t.Errorf("%s: decided %v, progress %v: %+v; the file has %+v, and pivot status %+v", name, decided, progress, values.Field(i), files.Field(i), fulls.Field(i))
		}
	}
	if got.Step != "pull" || got.Percent != 42 || got.PulledBytes() != 7 {
		t.Errorf("the progress is %+v", got)
	}
}

// fill gives each field of a struct a value, also those of the structs in it.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("of the answer")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("no value for a %s", v.Type())
	}
}

// TestAskedDuringARun: pivot is asked during a run only if there is no answer of this start of the system yet, or
// if the run has no file.
func TestAskedDuringARun(t *testing.T) {
	full, file := hostpivot.Status{Phase: "done"}, hostpivot.Status{Step: "pull"}
	var asked, read int
	var answer hostpivot.Answer
	look := func(what string, err error, want int, step string) {
		t.Helper()
		asked = 0
		got, failed := answer.Status("1", of(file, err, &read), of(full, nil, &asked))
		if failed != nil || asked != want || got.Step != step || got.Phase != "done" {
			t.Errorf("%s: asked %d times, %+v, %v", what, asked, got, failed)
		}
	}
	broken := errors.New("broken")
	if _, err := answer.Status("1", of(file, nil, &read), of(full, broken, &asked)); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	look("an agent that has just started", nil, 1, "")
	look("the next time", nil, 0, "pull")
	look("a file that cannot be read", broken, 1, "")
	if _, err := answer.Status("0+1", nil, of(full, nil, &asked)); err != nil {
		t.Error(err)
	}
	look("an answer of another start", nil, 1, "")
}
