package hostpivot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"machine-pivot/internal/pid1"
)

// Verb is what a run of pivot is for.
type Verb string

// The verbs.
const (
	Download Verb = "download"  // all checks and the image; the machine does not change
	Apply    Verb = "apply"     // change the machine, and reboot it if Request.Reboot says so
	HandBack Verb = "hand-back" // give the machine back to the machine-config-daemon
	Revert   Verb = "revert"    // give up the next boot: it is not what the machine should become
)

// Request is a run of pivot that the agent asks for.
type Request struct {
	Verb   Verb   `json:"verb"`
	Early  bool   `json:"early,omitempty"` // a download before the turn of the MachineConfig; its failure is none of the change
	Config string `json:"config"`          // name of the MachineConfig
	Digest string `json:"digest"`          // of Data: DigestOf
	// Downloaded says that everything for it is on the host.
	Downloaded bool `json:"downloaded,omitempty"`
	// Reboot allows a reboot. Without it, a change that needs one is refused before anything changes,
	// so that no machine reboots that was not drained.
	Reboot bool `json:"reboot,omitempty"`
	// Unsupported is the value of pivot's flag --unsupported.
	Unsupported string `json:"unsupported,omitempty"`
	// Try is how long the new system may take to prove itself; 0: no trial.
	Try time.Duration `json:"try,omitempty"`
	// Data is the MachineConfig in JSON. It may contain secrets.
	Data []byte `json:"-"`
	// ID identifies the run among those of this start of the system, which is Of. Start sets both.
	ID string       `json:"id"`
	Of pid1.StartID `json:"start,omitempty"`
}

// DigestOf returns the digest of a MachineConfig as pivot records it: sha256:…
func DigestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// RunState is the state of the last run of this start.
type RunState string

// The states of a run.
const (
	RunNone    RunState = ""
	RunRunning RunState = "running"
	RunEnded   RunState = "ended"
)

// Run is the last run that an agent has started in this start of the system.
type Run struct {
	Request Request
	State   RunState
	Failure *Failure // of a run that has ended; nil if it has succeeded
	Result  *Result  // nil if the run wrote none
	// Ended is when the run wrote its result; zero if it wrote none.
	Ended time.Time
	// Rebooting says that the run has ended, and systemd has accepted the reboot.
	Rebooting bool
}

// ErrNotOstree is the error of a host that is not booted from an ostree deployment. Such a host is left
// alone.
var ErrNotOstree = errors.New("the host is not booted from an ostree deployment")
