package status

import (
	"fmt"
	"strings"
	"time"

	"machine-pivot/internal/printable"
	"machine-pivot/pivot"
)

// Transfer is the progress of a download. Its rate covers the last seconds only, so that a
// slowing registry becomes visible.
type Transfer struct {
	samples []sample // of the last rateOver, oldest first
}

type sample struct {
	at   time.Time
	done int64
}

// rateOver is the time over which the rate is measured.
const rateOver = 10 * time.Second

// Text returns the progress on one line: percentage, bytes done and total, rate and remaining
// time; or, after the download, that the data is being written.
func (t *Transfer) Text(now time.Time, a pivot.Amount) string {
	return strings.Join(t.fields(now, a), ", ")
}

// fields returns the fields of Text, most important first.
func (t *Transfer) fields(now time.Time, a pivot.Amount) []string {
	rate := t.rate(now, a.Done)
	if a.Stage == pivot.Writing {
		return []string{string(a.Stage), printable.Size(a.Done) + " fetched"}
	}
	if a.Total <= 0 {
		return append([]string{printable.Size(a.Done)}, speed(rate)...)
	}
	fields := append([]string{fmt.Sprintf("%d%%", a.Percent()), printable.Size(a.Done) + " of " + printable.Size(a.Total)}, speed(rate)...)
	if rate > 0 && a.Total > a.Done {
		left := time.Duration(float64(a.Total-a.Done) / rate * float64(time.Second))
		fields = append(fields, left.Round(time.Second).String()+" left")
	}
	return fields
}

// speed formats a rate, if it is known.
func speed(rate float64) []string {
	if rate <= 0 {
		return nil
	}
	return []string{printable.Size(int64(rate)) + "/s"}
}

// rate returns the rate in bytes per second, or 0 if unknown.
func (t *Transfer) rate(now time.Time, done int64) float64 {
	if n := len(t.samples); n > 0 && done < t.samples[n-1].done {
		t.samples = nil // a new transfer
	}
	t.samples = append(t.samples, sample{now, done})
	for len(t.samples) > 2 && now.Sub(t.samples[1].at) >= rateOver {
		t.samples = t.samples[1:]
	}
	first := t.samples[0]
	seconds := now.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(done-first.done) / seconds
}
