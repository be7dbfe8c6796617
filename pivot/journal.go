package pivot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"machine-pivot/fault"
	"machine-pivot/hostfiles"
)

// Phase is how far a transaction is.
type Phase string

const (
	Idle      Phase = "idle"      // nothing asked for yet
	Applying  Phase = "applying"  // at work; nothing that the next boot would see
	Committed Phase = "committed" // the next boot is asked to be the target
	Done      Phase = "done"      // proven on the boot after
	Failed    Phase = "failed"    // ended without reaching the target
)

// MaxAttempts bounds how often a machine that comes up on its old system tries again.
const MaxAttempts = 3

// Record is the journal: what was meant. What is true the host says.
type Record struct {
	Format  int        `json:"format"` // of this file; 1
	Phase   Phase      `json:"phase"`
	BootID  string     `json:"bootID"`  // of the boot that wrote Phase
	Attempt int        `json:"attempt"` // from 1
	Target  Target     `json:"target"`
	Started time.Time  `json:"started,omitzero"`
	Error   *Failure   `json:"error,omitempty"`
	Phases  []Duration `json:"phases,omitempty"`  // what each step took, over all boots of the attempt
	History []Account  `json:"history,omitempty"` // the transactions that are over, oldest first
}

// Account is what is kept of a transaction that is over.
type Account struct {
	Phase   Phase      `json:"phase"` // Done or Failed
	Attempt int        `json:"attempt"`
	Image   Image      `json:"image,omitzero"` // zero: the image was kept
	Started time.Time  `json:"started"`
	Ended   time.Time  `json:"ended"`
	Error   *Failure   `json:"error,omitempty"`
	Phases  []Duration `json:"phases"`
}

// What the journal keeps at most: it is read and written whole.
const (
	maxHistory = 10
	maxPhases  = 50
)

// Failure is an error as it is kept and shown.
type Failure struct {
	Message   string `json:"message"`
	Hint      string `json:"hint"`
	Permanent bool   `json:"permanent"`
}

// FailureOf makes the kept form of an error.
func FailureOf(err error) *Failure {
	return &Failure{Message: err.Error(), Hint: fault.HintOf(err), Permanent: !fault.KindOf(err).Transient()}
}

// Duration is what one named step took.
type Duration struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	BootID  string  `json:"bootID,omitempty"` // of the boot in which it ran
}

// formatVersion is the journal format this program reads and writes.
const formatVersion = 1

// Journal keeps one Record in a file, replaced whole and durably at each write.
type Journal struct {
	Path string
	Disk hostfiles.Disk
}

// StateDir is where a host keeps what pivot remembers.
const StateDir = "/var/lib/pivot"

// JournalIn is the journal of the host whose root directory is given. /var is
// shared by all deployments, so it survives the pivot.
func JournalIn(root string) Journal {
	return Journal{Path: filepath.Join(root, StateDir, "journal.json"), Disk: hostfiles.OS{}}
}

// Load reads the record; a host without one is Idle.
func (j Journal) Load() (Record, error) {
	data, err := os.ReadFile(j.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{Format: formatVersion, Phase: Idle}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("cannot read journal: %w", err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, j.unusable("%v", err)
	}
	if r.Format != formatVersion {
		return Record{}, j.unusable("its format is %d, this program knows %d", r.Format, formatVersion)
	}
	return r, nil
}

func (j Journal) unusable(format string, args ...any) error {
	return fault.New(fault.Refused, "cannot use journal %s: %s", j.Path, fmt.Sprintf(format, args...)).
		WithHint("move the file away to start over; the host itself says what is deployed")
}

// Save replaces the record durably: when it returns, a power cut finds the new one.
func (j Journal) Save(r Record) error {
	r.Format = formatVersion
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write journal: %w", err)
	}
	if err := hostfiles.MakeDir(j.Disk, filepath.Dir(j.Path), 0o755); err != nil {
		return fault.New(fault.CannotWrite, "cannot write journal: %w", err)
	}
	err = hostfiles.Replace(j.Disk, j.Path, append(data, '\n'), 0o644)
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot write journal: %w", err)
	}
	return nil
}
