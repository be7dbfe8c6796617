package pivot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// Phase is how far a transaction is.
type Phase string

const (
	PhaseIdle      Phase = "idle"      // nothing asked for yet
	PhaseApplying  Phase = "applying"  // at work; nothing that the next boot would see
	PhaseCommitted Phase = "committed" // the next boot is asked to be the target
	PhaseTrial     Phase = "trial"     // the target runs, and has to prove itself before it is kept
	PhaseDone      Phase = "done"      // proven on the boot after
	PhaseFailed    Phase = "failed"    // ended without reaching the target
	PhaseUndone    Phase = "undone"    // committed or done, but somebody else took it back
)

// MaxAttempts bounds how often a machine that comes up on its old system tries again.
const MaxAttempts = 3

// Record is the journal: what was meant. What is true the host says.
type Record struct {
	Format  int       `json:"format"` // of this file
	Phase   Phase     `json:"phase"`
	BootID  string    `json:"bootID"`  // of the boot that wrote Phase
	Attempt int       `json:"attempt"` // from 1
	Target  Target    `json:"target"`
	Started time.Time `json:"started,omitzero"`
	// Contents are those of the target's files that are kept for a later attempt.
	Contents []hostfiles.Digest `json:"contents,omitempty"`
	// Trial is that of the target, until it is over; nil: it needs none.
	Trial *Trial `json:"trial,omitempty"`

	// Downloaded is what was pulled for a later run, whatever the transaction is about; nil: nothing.
	Downloaded *Download `json:"downloaded,omitempty"`
	// Slot is one of the fleet's lock that the machine has asked for, and not given back; nil: none.
	Slot *Slot `json:"slot,omitempty"`

	Error   *Failure   `json:"error,omitempty"`
	Phases  []Duration `json:"phases,omitempty"`  // what each step took, over all boots of the attempt
	Boots   []Boot     `json:"boots,omitempty"`   // the boots in which they ran, oldest first
	History []Account  `json:"history,omitempty"` // the transactions that are over, oldest first
	Closed  *Closing   `json:"closed,omitempty"`  // the first boot, once it is over; later transactions leave it
}

// Closing is how a first boot ended. /var, where the journal is, is shared by all
// deployments; /etc is not, so in an older one the first boot still looks open.
type Closing struct {
	Deployment string `json:"deployment"` // in which it was proven: Deployment.ID
	Request    string `json:"request"`    // the encapsulated MachineConfig: sha256:… of the file
}

// WasCommitted reports whether the transaction, which is not done, was committed
// at least once: an attempt follows another only after a commit that did not hold.
func (r Record) WasCommitted() bool {
	return r.Phase == PhaseCommitted || r.Phase == PhaseTrial || r.Phase != PhaseDone && r.Attempt > 1
}

// Account is what is kept of a transaction that is over.
type Account struct {
	Phase   Phase      `json:"phase"` // PhaseDone or PhaseFailed
	Attempt int        `json:"attempt"`
	Image   Image      `json:"image,omitzero"` // zero: the image was kept
	Started time.Time  `json:"started"`
	Ended   time.Time  `json:"ended"`
	Error   *Failure   `json:"error,omitempty"`
	Phases  []Duration `json:"phases"`
	Boots   []Boot     `json:"boots,omitempty"`
}

// What the journal keeps at most: it is read and written whole.
const (
	maxHistory = 10
	maxPhases  = 50
)

// Failure is an error as it is kept and shown.
type Failure struct {
	Message    string `json:"message"`
	Hint       string `json:"hint"`
	Permanent  bool   `json:"permanent"`
	ExitStatus int    `json:"exitStatus,omitempty"` // of the run; 0 where an older program wrote it
}

// FailureOf makes the kept form of an error.
func FailureOf(err error) *Failure {
	kind := fault.KindOf(err)
	return &Failure{Message: err.Error(), Hint: fault.HintOf(err), Permanent: !kind.Transient(), ExitStatus: kind.ExitStatus()}
}

// Duration is what one named step took.
type Duration struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	BootID  string  `json:"bootID,omitempty"` // of the boot in which it ran
	At      float64 `json:"at,omitempty"`     // when it began: seconds after that boot's kernel started; 0 if not known
	Bytes   int64   `json:"bytes,omitempty"`  // what it transferred
	Failed  int     `json:"failed,omitempty"` // how many of its tries failed
	Tries   []Try   `json:"tries,omitempty"`  // the last of these
}

// Names, beside the journal, of files that are there as long as it has what they stand for:
// units ask for them, in whichever system boots.
const (
	TrialStamp = "trial" // a trial: pivot-trial.service
	SlotStamp  = "slot"  // a slot of the fleet's lock: pivot-slot.service
)

// stamp is one of these files, and whether the record has what it stands for.
type stamp struct {
	name   string
	wanted bool
}

func (r Record) stamps() []stamp {
	return []stamp{{TrialStamp, r.Trial != nil}, {SlotStamp, r.Slot != nil}}
}

func (j Journal) stampFile(name string) string { return filepath.Join(filepath.Dir(j.Path), name) }

// stamp makes a stamp durable, before the journal has what it stands for.
func (j Journal) stamp(name string) error {
	if _, err := os.Lstat(j.stampFile(name)); err == nil {
		return nil
	}
	if err := hostfiles.Replace(j.Disk, j.stampFile(name), nil, 0o644); err != nil {
		return fault.New(fault.CannotWrite, "cannot begin a %s: %w", name, err)
	}
	return nil
}

// unstamp removes a stamp. One that comes back after a power cut costs the next boot a look
// at the journal.
func (j Journal) unstamp(name string) error {
	if _, err := os.Lstat(j.stampFile(name)); err != nil {
		return nil
	}
	if err := j.Disk.Remove(j.stampFile(name)); err != nil {
		return fault.New(fault.CannotWrite, "cannot end a %s: %w", name, err)
	}
	return nil
}

// formatVersion is the journal format that this program writes. It reads format 1
// too, in which the target's files had their contents instead of digests; a
// program that knows only that would take a file without content for an empty one.
const formatVersion = 2

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

// Load reads the record; a host without one is PhaseIdle.
func (j Journal) Load() (Record, error) {
	data, err := os.ReadFile(j.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{Format: formatVersion, Phase: PhaseIdle}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("cannot read journal: %w", err)
	}
	return j.Parse(data)
}

// Parse reads the record in the contents of a journal, which may come from another machine.
func (j Journal) Parse(data []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, j.unusable("%v", err)
	}
	switch r.Format {
	case formatVersion:
		return r, nil
	case 1:
		if err := r.upgrade(data); err != nil {
			return Record{}, j.unusable("%v", err)
		}
		return r, nil
	}
	return Record{}, j.unusable("its format is %d, this program knows those up to %d", r.Format, formatVersion)
}

// CheckWritable is an error if no journal can be written, as far as is known without
// a write: its file system is read-only.
func (j Journal) CheckWritable() error {
	if err := hostfiles.CheckWritable(filepath.Dir(j.Path)); err != nil {
		return fault.New(fault.CannotWrite, "cannot write journal: %w", err)
	}
	return nil
}

func (j Journal) unusable(format string, args ...any) error {
	return fault.New(fault.Refused, "cannot use journal %s: %s", j.Path, fmt.Sprintf(format, args...)).
		WithHint("move the file away to start over; the host itself says what is deployed")
}

// Save replaces the record durably: when it returns, a power cut finds the new one.
// The contents that it names must be kept already; all others are removed.
func (j Journal) Save(r Record) error {
	r.Format = formatVersion
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write journal: %w", err)
	}
	if _, err := os.Lstat(j.Path); err != nil { // whoever wrote one has made its directory durable
		if err := hostfiles.MakeDir(j.Disk, filepath.Dir(j.Path), 0o755); err != nil {
			return fault.New(fault.CannotWrite, "cannot write journal: %w", err)
		}
	}
	for _, s := range r.stamps() {
		if s.wanted {
			if err := j.stamp(s.name); err != nil {
				return err
			}
		}
	}
	err = hostfiles.Replace(j.Disk, j.Path, append(data, '\n'), 0o644)
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot write journal: %w", err)
	}
	for _, s := range r.stamps() {
		if !s.wanted {
			if err := j.unstamp(s.name); err != nil {
				return err
			}
		}
	}
	return j.release(r.kept())
}
