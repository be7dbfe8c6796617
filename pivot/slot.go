package pivot

import (
	"time"

	"machine-pivot/internal/pid1"
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

// SlotNeed says whether the reboot of a run needs a slot of the fleet's lock.
type SlotNeed string

const (
	SlotNone   SlotNeed = ""       // it needs none, or there is no lock
	SlotWanted SlotNeed = "wanted" // the machine has to get one first
	SlotTaken  SlotNeed = "taken"  // the machine has it
)

// SlotUse says what a slot is still needed for.
type SlotUse string

const (
	SlotWaits  SlotUse = "waits"  // the reboot that it was taken for is still to come
	SlotTried  SlotUse = "tried"  // the system that it was taken for is on trial
	SlotProves SlotUse = "proves" // needed until the running system is what was requested
	SlotFree   SlotUse = "free"   // not needed
)

// JudgeSlot returns what the journal's slot is still needed for in the given start. It is a
// pure function. pending says that the next boot starts another system than the running one.
func JudgeSlot(r JournalContent, now pid1.StartID, pending bool) SlotUse {
	switch {
	case r.Trial != nil:
		return SlotTried
	case r.Phase != PhaseCommitted: // the trial was confirmed, or has failed and the old system runs
		return SlotFree
	case r.BootID == now && pending:
		return SlotWaits
	case r.BootID == now: // the commit was taken back
		return SlotFree
	case !r.Slot.used(r):
		return SlotFree
	}
	return SlotProves
}

// used reports whether anything may have been committed since the slot was requested.
func (s Slot) used(r JournalContent) bool { return r.BootID != s.Phase || s.Phase == s.Boot }
