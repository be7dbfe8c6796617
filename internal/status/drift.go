package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/printable"
)

// Message IDs of drift; the values never change.
const (
	driftedID = "53370146919d4c348889c007e2388688"
	settledID = "4510831291c1494f875ef627d8e779e2"
)

// fieldDifferences is the journal field with the number of differences.
const fieldDifferences = "PIVOT_DIFFERENCES"

// Drift reports how a watched machine differs from its target: to systemd and in the metrics
// after each check, in the log only when the differences have changed.
type Drift struct {
	Log    *logrus.Logger
	Notify func(status string) // systemd's STATUS=
	Now    func() time.Time
	// Metrics is a Prometheus textfile; "": none. It must not be the one of transactions,
	// because another process may write that one at the same time.
	Metrics string

	reported []string
}

// Tell reports the differences that a check found. There are none if the machine matches its
// target.
func (d *Drift) Tell(differences []string) {
	text := "the machine is what was asked for"
	if len(differences) > 0 {
		text = fmt.Sprintf("the machine now differs from its target: %s", strings.Join(differences, "; "))
	}
	d.Notify(printable.Line(text))
	if err := keepMetrics(d.Metrics, d.exposed(len(differences))); err != nil {
		d.Log.WithError(err).Warn("the metrics are not kept")
	}
	if !slices.Equal(differences, d.reported) {
		d.change(text, differences)
	}
	d.reported = slices.Clone(differences)
}

// change logs that the differences have changed.
func (d *Drift) change(text string, differences []string) {
	log := d.Log.WithField(fieldDifferences, fmt.Sprint(len(differences)))
	if len(differences) == 0 {
		log.WithField(fieldMessageID, settledID).Info(text + " again")
		return
	}
	log.WithField(fieldMessageID, driftedID).Warn(text)
}

// exposed returns the metrics of a check.
func (d *Drift) exposed(differences int) []byte {
	var m exposition
	m.gauge("pivot_differences", "How many differences from what was last asked for the last look found.", float64(differences))
	m.gauge("pivot_compared_timestamp_seconds", "When the last look was.", float64(d.Now().Unix()))
	return m.Bytes()
}
