package status_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// samples parses metrics as Prometheus does: "name{label=value}" to value.
func samples(t *testing.T, data []byte) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("Prometheus cannot read them: %v\n%s", err, data)
	}
	found := map[string]float64{}
	for name, family := range families {
		if family.GetHelp() == "" || family.GetType().String() != "GAUGE" {
			t.Errorf("%s has the help %q and the type %s", name, family.GetHelp(), family.GetType())
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := name
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			found[key] = m.GetGauge().GetValue()
		}
	}
	return found
}

// TestMetrics (P75): metrics are written in Prometheus' format, if configured.
func TestMetrics(t *testing.T) {
	r, _, _ := reporter(t)
	r.Metrics = filepath.Join(t.TempDir(), "textfile_collector/pivot.prom")
	read := func() map[string]float64 {
		t.Helper()
		data, err := os.ReadFile(r.Metrics)
		if err != nil {
			t.Fatal(err)
		}
		return samples(t, data)
	}
	expect := func(when string, want map[string]float64) {
		t.Helper()
		if got := read(); !maps.Equal(got, want) {
			t.Errorf("%s: the metrics are\n%v, want\n%v", when, got, want)
		}
	}
	image := "r.example/os@sha256:aa \"quoted\" \\ and\nmore"
	journal := pivot.JournalContent{Phase: pivot.PhaseApplying, Attempt: 2, Started: time.Unix(1700000000, 0), Target: pivot.Target{Image: pivot.ImageOf(imageref.FromOrigin(image))},
		Phases: []pivot.Duration{{Name: "pull", Seconds: 1.5, Bytes: 1e6, Failed: 2}, {Name: "commit", Seconds: 4}, {Name: "pull", Seconds: 2, Bytes: 5e6}}}
	phases := func(now pivot.Phase) map[string]float64 {
		want := map[string]float64{}
		for _, p := range []pivot.Phase{pivot.PhaseIdle, pivot.PhaseApplying, pivot.PhaseCommitted, pivot.PhaseTrial, pivot.PhaseDone, pivot.PhaseFailed, pivot.PhaseUndone, pivot.PhaseInterrupted} {
			want["pivot_phase{phase="+string(p)+"}"] = 0
		}
		want["pivot_phase{phase="+string(now)+"}"] = 1
		maps.Copy(want, map[string]float64{
			"pivot_attempts": 2, "pivot_started_timestamp_seconds": 1700000000, "pivot_target_info{image=" + strings.ReplaceAll(image, "\n", `\n`) + "}": 1,
			"pivot_step_seconds{step=pull}": 3.5, "pivot_step_seconds{step=commit}": 4,
			"pivot_step_transferred_bytes{step=pull}": 6e6, "pivot_step_failed_tries{step=pull}": 2,
		})
		return want
	}

	r.Emit(pivot.Event{Kind: pivot.EventBegan, Step: pivot.StepPull, Journal: journal})
	if _, err := os.Stat(r.Metrics); err == nil {
		t.Error("a step that begins writes metrics")
	}
	r.Emit(pivot.Event{Kind: pivot.EventEntered, Journal: journal})
	expect("at work", phases(pivot.PhaseApplying))

	err := fault.New(fault.CannotWrite, "no space")
	journal.Phase, journal.Error = pivot.PhaseFailed, pivot.FailureOf(err)
	r.Emit(pivot.Event{Kind: pivot.EventFailing, Err: err, Journal: journal})
	want := phases(pivot.PhaseFailed)
	want["pivot_failure_exit_status"], want["pivot_failure_permanent"] = 73, 1
	expect("failed", want)

	journal.Phase, journal.Error = pivot.PhaseDone, nil
	r.Emit(pivot.Event{Kind: pivot.EventEntered, Journal: journal})
	expect("done", phases(pivot.PhaseDone))
	left, err2 := filepath.Glob(filepath.Join(filepath.Dir(r.Metrics), "*"))
	if all, _ := os.ReadDir(filepath.Dir(r.Metrics)); err2 != nil || len(left) != 1 || len(all) != 1 {
		t.Errorf("left behind: %v", all)
	}
	if info, err := os.Stat(r.Metrics); err != nil || info.Mode() != 0o644 {
		t.Errorf("the file is %v: %v", info, err)
	}
}

// TestMetricsOfNothing: unknown values have no series, instead of 0.
func TestMetricsOfNothing(t *testing.T) {
	got := samples(t, status.Metrics(pivot.JournalContent{Phase: pivot.PhaseIdle}))
	if names := slices.Sorted(maps.Keys(got)); len(names) != 9 || got["pivot_phase{phase=idle}"] != 1 || got["pivot_attempts"] != 0 {
		t.Errorf("the metrics are %v", got)
	}
}

// TestMetricsCannotBeWritten: the error is logged, and nothing else fails.
func TestMetricsCannotBeWritten(t *testing.T) {
	r, log, _ := reporter(t)
	r.Metrics = filepath.Join(t.TempDir(), "file/pivot.prom")
	if err := os.WriteFile(filepath.Dir(r.Metrics), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.Emit(pivot.Event{Kind: pivot.EventEntered, Journal: pivot.JournalContent{Phase: pivot.PhaseDone}})
	if !strings.Contains(log.String(), "warning: the metrics are not kept") || !strings.Contains(log.String(), "phase done") {
		t.Errorf("the log is %s", log)
	}
}
