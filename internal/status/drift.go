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

// fieldDifferences is how many differences there are.
const fieldDifferences = "PIVOT_DIFFERENCES"

// Drift tells how a machine that is watched differs from what was last asked for: systemd
// and the metrics at each look, the log where that has changed.
type Drift struct {
	Log    *logrus.Logger
	Notify func(status string) // systemd's STATUS=
	Now    func() time.Time
	// Metrics is a file for Prometheus; "": none. It is another one than a transaction's,
	// which another process may write at the same time.
	Metrics string

	told []string
}

// Tell tells what a look has found: none, if the machine is what was asked for.
func (d *Drift) Tell(differences []string) {
	text := "the machine is what was asked for"
	if len(differences) > 0 {
		text = fmt.Sprintf("the machine has come to differ: %s", strings.Join(differences, "; "))
	}
	d.Notify(printable.Line(text))
	if err := keepMetrics(d.Metrics, d.exposed(len(differences))); err != nil {
		d.Log.WithError(err).Warn("the metrics are not kept")
	}
	if !slices.Equal(differences, d.told) {
		d.change(text, differences)
	}
	d.told = slices.Clone(differences)
}

// change logs that a look has found otherwise than the one before.
func (d *Drift) change(text string, differences []string) {
	log := d.Log.WithField(fieldDifferences, fmt.Sprint(len(differences)))
	if len(differences) == 0 {
		log.WithField(fieldMessageID, settledID).Info(text + " again")
		return
	}
	log.WithField(fieldMessageID, driftedID).Warn(text)
}

// exposed are the metrics of a look.
func (d *Drift) exposed(differences int) []byte {
	var m exposition
	m.family("pivot_differences", "How many differences from what was last asked for the last look found.")
	m.sample("pivot_differences", "", "", float64(differences))
	m.family("pivot_compared_timestamp_seconds", "When the last look was.")
	m.sample("pivot_compared_timestamp_seconds", "", "", float64(d.Now().Unix()))
	return m.Bytes()
}
