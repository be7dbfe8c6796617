package pivot

import (
	"math"
	"slices"
	"time"

	"machine-pivot/internal/pid1"
)

// Boot is one start of the machine, with the times that the kernel and systemd measured. Times
// are in seconds, 0 if unknown or not applicable. A soft reboot has only Kernel, which is when the kernel
// that it keeps was started.
type Boot struct {
	ID pid1.StartID `json:"id"`
	// Kernel is when the kernel started, by the clock of the run that noted it. If the clock is
	// set later, the time between two boots is wrong, but never a time within one boot.
	Kernel    time.Time `json:"kernel"`
	Firmware  float64   `json:"firmware,omitempty"`  // duration of the firmware, before the boot loader
	Loader    float64   `json:"loader,omitempty"`    // duration of the boot loader, before the kernel
	Initramfs float64   `json:"initramfs,omitempty"` // start of systemd in the initramfs, after the kernel's start
	System    float64   `json:"system,omitempty"`    // start of systemd in the system, after the kernel's start
}

// at converts a time in this boot to seconds after the kernel's start; 0 if that is unknown.
func (b Boot) at(t time.Time) float64 {
	if b.Kernel.IsZero() {
		return 0
	}
	return seconds(t.Sub(b.Kernel))
}

// Try is a failed try of a step.
type Try struct {
	At      float64 `json:"at,omitempty"` // time of the failure, in seconds after the kernel's start; 0 if unknown
	Message string  `json:"message"`
	Last    bool    `json:"last,omitempty"` // it ended the run
}

// maxTries bounds the failed tries that are kept of one step, and maxBoots the boots of a
// transaction; the last ones are kept. The journal is read and written as a whole.
const (
	maxTries = 5
	maxBoots = 2 * MaxAttempts
)

// failed records a failed try of the current step.
func (p *Progress) failed(err error, last bool) {
	if p.step == "" {
		return
	}
	p.running.Failed++
	try := Try{Message: brief(err.Error(), maxTry), Last: last}
	if p.Boot.ID != "" {
		try.At = p.Boot.at(p.Now())
	}
	p.running.Tries = append(p.running.Tries, try)
	p.running.Tries = p.running.Tries[max(0, len(p.running.Tries)-maxTries):]
}

// noteBoot adds the current boot to the journal, or updates it there.
func (p *Progress) noteBoot() {
	if p.Boot.ID == "" {
		return
	}
	boots := slices.DeleteFunc(slices.Clone(p.Content.Boots), func(b Boot) bool { return b.ID == p.Boot.ID })
	p.Content.Boots = append(boots[max(0, len(boots)+1-maxBoots):], p.Boot)
}

// seconds returns d in seconds, rounded to milliseconds.
func seconds(d time.Duration) float64 { return math.Round(1000*d.Seconds()) / 1000 }
