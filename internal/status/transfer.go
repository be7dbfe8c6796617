package status

import (
	"fmt"
	"time"
)

// Transfer is the progress of a download. Its rate is that of the last seconds, so that a
// registry that becomes slow can be seen.
type Transfer struct {
	samples []sample // of the last rateOver, oldest first
}

type sample struct {
	at   time.Time
	done int64
}

// rateOver is the time over which the rate is taken.
const rateOver = 10 * time.Second

// Text is a line with percent, bytes, rate and time left. done and total are in bytes;
// total is 0 if it is not known.
func (t *Transfer) Text(now time.Time, done, total int64) string {
	rate := t.rate(now, done)
	text := size(done)
	if total > 0 {
		text = fmt.Sprintf("%d%%, %s of %s", 100*done/total, size(done), size(total))
	}
	if rate <= 0 {
		return text
	}
	text += fmt.Sprintf(", %s/s", size(int64(rate)))
	if total > done {
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	return text
}

// rate is in bytes per second; 0 if it is not known yet.
func (t *Transfer) rate(now time.Time, done int64) float64 {
	if n := len(t.samples); n > 0 && done < t.samples[n-1].done {
		t.samples = nil // another transfer
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
