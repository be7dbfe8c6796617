package slot

import (
	"time"

	"machine-pivot/internal/pid1"
	"machine-pivot/pivot"
)

// Slot is a reboot slot of a FleetLock server. It is journaled before the server is asked, so
// that no slot is forgotten: releasing a slot that is not held is a no-op.
type Slot struct {
	URL   string       `json:"url"` // of the server
	Group string       `json:"group"`
	ID    string       `json:"id"`    // of the machine
	Since time.Time    `json:"since"` // when it was requested
	Boot  pid1.StartID `json:"boot"`  // of the start in which it was requested
	// Phase is the start that had written the journal's phase at that time.
	Phase pid1.StartID `json:"phase,omitempty"`
	Held  bool         `json:"held"` // the server has granted it
}

// In returns the slot in a journal; nil if there is none.
func In(r pivot.JournalContent) (*Slot, error) { return pivot.PartOf[Slot](r, Name) }

// Use says what a slot is still needed for.
type Use string

const (
	Waits  Use = "waits"  // the reboot that it was taken for is still to come
	Tried  Use = "tried"  // the system that it was taken for is on trial
	Proves Use = "proves" // needed until the running system is what was requested
	Free   Use = "free"   // not needed
)

// Judge returns what a slot is still needed for in the given start. It is a pure function. pending says that the next
// boot starts another system than the running one.
func (s Slot) Judge(r pivot.JournalContent, now pid1.StartID, pending bool) Use {
	switch {
	case r.Held():
		return Tried
	case r.Phase != pivot.PhaseCommitted: // the trial was confirmed, or has failed and the old system runs
		return Free
	case r.BootID == now && pending:
		return Waits
	case r.BootID == now: // the commit was taken back
		return Free
	case !s.used(r):
		return Free
	}
	return Proves
}

// used reports whether anything may have been committed since the slot was requested.
func (s Slot) used(r pivot.JournalContent) bool { return r.BootID != s.Phase || s.Phase == s.Boot }
