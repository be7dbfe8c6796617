package pivot

import (
	"math"
	"slices"
	"time"
)

// Boot is one boot of the machine as the kernel and systemd timed it. Spans are in
// seconds, 0 where one is not known or was not there.
type Boot struct {
	ID string `json:"id"` // the kernel's
	// Kernel is when the kernel started, by the clock of the run that noted it: a clock
	// that is set later makes the distance of two boots wrong, never a span within one.
	Kernel    time.Time `json:"kernel"`
	Firmware  float64   `json:"firmware,omitempty"`  // what the firmware took, before the boot loader
	Loader    float64   `json:"loader,omitempty"`    // what the boot loader took, before the kernel
	Initramfs float64   `json:"initramfs,omitempty"` // when systemd started in the initramfs, after the kernel did
	System    float64   `json:"system,omitempty"`    // when it started in the system, after the kernel did
}

// at is a moment of this boot in seconds after the kernel's start; 0 if that is not known.
func (b Boot) at(t time.Time) float64 {
	if b.Kernel.IsZero() {
		return 0
	}
	return seconds(t.Sub(b.Kernel))
}

// Try is a try of a step that failed.
type Try struct {
	At      float64 `json:"at,omitempty"` // when it failed: seconds after the kernel's start; 0 if not known
	Message string  `json:"message"`
	Last    bool    `json:"last,omitempty"` // the run ended with it
}

// maxTries are the failures that are kept of one step, its last ones, and maxBoots the
// boots of a transaction: the journal is read and written whole.
const (
	maxTries = 5
	maxBoots = 2 * MaxAttempts
)

// failed notes that a try of the running step failed.
func (p *Progress) failed(err error, last bool) {
	if p.step == "" {
		return
	}
	p.running.Failed++
	try := Try{Message: err.Error(), Last: last}
	if p.Boot.ID != "" {
		try.At = p.Boot.at(p.Now())
	}
	p.running.Tries = append(p.running.Tries, try)
	p.running.Tries = p.running.Tries[max(0, len(p.running.Tries)-maxTries):]
}

// noteBoot makes the record tell of the boot in which this run is.
func (p *Progress) noteBoot() {
	if p.Boot.ID == "" {
		return
	}
	boots := slices.DeleteFunc(slices.Clone(p.Record.Boots), func(b Boot) bool { return b.ID == p.Boot.ID })
	p.Record.Boots = append(boots[max(0, len(boots)+1-maxBoots):], p.Boot)
}

// seconds is a span to the millisecond.
func seconds(d time.Duration) float64 { return math.Round(1000*d.Seconds()) / 1000 }
