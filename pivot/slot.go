package pivot

import "time"

// Slot is a slot of the fleet's lock. The journal has it before the server is asked, so that
// no slot is forgotten: to give back one that is not held does no harm.
type Slot struct {
	URL   string    `json:"url"` // of the server
	Group string    `json:"group"`
	ID    string    `json:"id"`    // of the machine
	Since time.Time `json:"since"` // when it was asked for
	Boot  string    `json:"boot"`  // the boot that asked
	// Phase is the boot that had written the journal's phase by then.
	Phase string `json:"phase,omitempty"`
	Held  bool   `json:"held"` // it was granted
}

// SlotUse is what a record tells of the use of its slot.
type SlotUse string

const (
	SlotWaits  SlotUse = "waits"  // for the reboot that it was taken for
	SlotTried  SlotUse = "tried"  // the system that it was taken for is on trial
	SlotProves SlotUse = "proves" // as soon as what runs is what was asked for, it is not needed
	SlotFree   SlotUse = "free"   // it is not needed
)

// JudgeSlot says what the record's slot is still needed for, as one pure function, in the boot
// of an ID. pending: the next boot is not the system that runs.
func JudgeSlot(r Record, bootID string, pending bool) SlotUse {
	switch {
	case r.Trial != nil:
		return SlotTried
	case r.Phase != PhaseCommitted: // it was confirmed, or has failed: the old system runs
		return SlotFree
	case r.BootID == bootID && pending:
		return SlotWaits
	case r.BootID == bootID: // what was committed was taken back
		return SlotFree
	case !r.Slot.used(r):
		return SlotFree
	}
	return SlotProves
}

// used reports whether anything may have been committed since the slot was asked for.
func (s Slot) used(r Record) bool { return r.BootID != s.Phase || s.Phase == s.Boot }
