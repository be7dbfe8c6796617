package status

import (
	"time"

	"machine-pivot/pivot"
)

// progressEvery is the minimum time between two displays of progress.
const progressEvery = 500 * time.Millisecond

// pace limits how often progress is displayed. The start of a new stage is always displayed.
type pace struct {
	stage pivot.Stage
	shown time.Time
}

// due reports whether to display progress now, and if so, records that it was.
func (p *pace) due(now time.Time, a pivot.Amount) bool {
	if a.Stage == p.stage && now.Sub(p.shown) < progressEvery {
		return false
	}
	p.stage, p.shown = a.Stage, now
	return true
}
