package status

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"machine-pivot/internal/printable"
	"machine-pivot/pivot"
)

// Metrics returns a record in the text format of Prometheus, for the textfile collector of a
// node exporter. All metrics are gauges, because they describe the current transaction only. The
// message of a failure is no label: each message would create a time series of its own.
func Metrics(r pivot.JournalContent) []byte {
	var m exposition
	m.family("pivot_phase", "Phase of the transaction: 1 for the one it is in.")
	for _, phase := range []pivot.Phase{pivot.PhaseIdle, pivot.PhaseApplying, pivot.PhaseCommitted, pivot.PhaseTrial, pivot.PhaseDone, pivot.PhaseFailed, pivot.PhaseUndone, pivot.PhaseInterrupted} {
		m.sample("pivot_phase", "phase", string(phase), is(phase == r.Phase))
	}
	m.gauge("pivot_attempts", "Attempts of the transaction so far. Each but the first follows a commit after which another system was booted.", float64(r.Attempt))
	if !r.Started.IsZero() {
		m.gauge("pivot_started_timestamp_seconds", "When the transaction was begun.", float64(r.Started.Unix()))
	}
	if !r.Target.Image.IsZero() {
		m.family("pivot_target_info", "The OS image that is asked for.")
		m.sample("pivot_target_info", "image", printable.Line(r.Target.Image.String()), 1)
	}
	m.steps(r.Phases, "pivot_step_seconds", "What a step took, over all boots and tries.", func(d pivot.Duration) float64 { return d.Seconds })
	m.steps(r.Phases, "pivot_step_transferred_bytes", "What a step transferred.", func(d pivot.Duration) float64 { return float64(d.Bytes) })
	m.steps(r.Phases, "pivot_step_failed_tries", "Tries of a step that failed.", func(d pivot.Duration) float64 { return float64(d.Failed) })
	if r.Error != nil {
		m.gauge("pivot_failure_exit_status", "Exit status of the run that failed last.", float64(r.Error.ExitStatus))
		m.gauge("pivot_failure_permanent", "1 if trying the same again fails again.", is(r.Error.Permanent))
	}
	return m.Bytes()
}

func is(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// exposition is a document in the text format of Prometheus.
type exposition struct{ bytes.Buffer }

func (m *exposition) family(name, help string) {
	fmt.Fprintf(m, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
}

// gauge adds a family that is one value without a label.
func (m *exposition) gauge(name, help string, value float64) {
	m.family(name, help)
	m.sample(name, "", "", value)
}

// sample adds a value with a label, or without one if label is "".
func (m *exposition) sample(name, label, text string, value float64) {
	if label != "" {
		// The format's escapes; printable has already escaped other control characters.
		name += fmt.Sprintf(`{%s="%s"}`, label, strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text))
	}
	fmt.Fprintf(m, "%s %s\n", name, strconv.FormatFloat(value, 'g', -1, 64))
}

// steps adds the sum for each step that has one, in the order of execution.
func (m *exposition) steps(ran []pivot.Duration, name, help string, of func(pivot.Duration) float64) {
	sums := map[string]float64{}
	for _, step := range ran {
		sums[step.Name] += of(step)
	}
	begun := false
	for _, step := range ran {
		sum := sums[step.Name]
		if sum == 0 {
			continue
		}
		if !begun {
			m.family(name, help)
			begun = true
		}
		m.sample(name, "step", printable.Line(step.Name), sum)
		delete(sums, step.Name)
	}
}

// keepMetrics replaces the metrics file, if one is configured.
func keepMetrics(file string, metrics []byte) error {
	if file == "" {
		return nil
	}
	return replace(file, metrics)
}
