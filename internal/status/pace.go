package status

import (
	"time"

	"machine-pivot/pivot"
)

// progressEvery bounds how often progress is shown, so that it costs nothing.
const progressEvery = 500 * time.Millisecond

// pace says when progress is to be shown: now and then, and whenever another stage begins.
type pace struct {
	stage pivot.Stage
	shown time.Time
}

// due reports whether it is time to, and takes it for shown then.
func (p *pace) due(now time.Time, a pivot.Amount) bool {
	if a.Stage == p.stage && now.Sub(p.shown) < progressEvery {
		return false
	}
	p.stage, p.shown = a.Stage, now
	return true
}
