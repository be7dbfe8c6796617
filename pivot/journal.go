package pivot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pid1"
)

// Phase is the phase of a transaction.
type Phase string

const (
	PhaseIdle      Phase = "idle"      // no transaction yet
	PhaseApplying  Phase = "applying"  // in progress; the next boot is unchanged
	PhaseCommitted Phase = "committed" // the next boot is to be the target
	PhaseTrial     Phase = "trial"     // the target runs on trial, and is not the default yet
	PhaseDone      Phase = "done"      // the running system was verified to be the target
	PhaseFailed    Phase = "failed"    // ended without reaching the target
	PhaseUndone    Phase = "undone"    // committed or done, but an administrator has gone back
	// PhaseInterrupted is a run that a signal ended before its commit: the next boot is unchanged,
	// and the same command continues from there.
	PhaseInterrupted Phase = "interrupted"
)

// open reports whether a transaction has not begun, or has not ended.
func (p Phase) open() bool { return p == "" || p == PhaseIdle || p == PhaseApplying }

// MaxAttempts is the number of attempts after which a machine that keeps booting its old system
// gives up.
const MaxAttempts = 3

// JournalContent is what the journal says: the intent. The actual state is read from the host.
type JournalContent struct {
	Format  int          `json:"format"` // of this file
	Phase   Phase        `json:"phase"`
	BootID  pid1.StartID `json:"bootID"`  // of the start in which Phase was written
	Attempt int          `json:"attempt"` // from 1
	Target  Target       `json:"target"`
	Started time.Time    `json:"started,omitzero"`
	// Contents are the digests of the target's files with contents that are kept for a later attempt.
	Contents []hostfiles.Digest `json:"contents,omitempty"`
	// Features are the parts of features, by name: see PartOf.
	Features map[string]Part `json:"features,omitempty"`

	Error   *Failure   `json:"error,omitempty"`
	Phases  []Duration `json:"phases,omitempty"`  // the duration of each step, over all boots of the attempt
	Boots   []Boot     `json:"boots,omitempty"`   // the boots in which the steps ran, oldest first
	History []Account  `json:"history,omitempty"` // finished transactions, oldest first
}

// WasCommitted reports whether the unfinished transaction was committed at least once. An
// attempt above 1 implies this: it only follows a commit that did not hold.
func (r JournalContent) WasCommitted() bool {
	return r.Phase == PhaseCommitted || r.Phase == PhaseTrial || r.Phase != PhaseDone && r.Attempt > 1
}

// Account is the summary of a finished transaction.
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

// Bounds of the journal, which is read and written as a whole, and of the messages in it, in bytes.
const (
	maxHistory = 10
	maxPhases  = 50
	maxMessage = 32 << 10
	maxTry     = 1 << 10
)

// roomToEnd is what a transaction may add to the journal from its beginning to its end, in bytes: its steps with their
// failed tries, its trial, its failure. The messages of both are bounded, and the history gives way.
const roomToEnd = 2 << 20

// Failure is the stored form of an error.
type Failure struct {
	Message    string `json:"message"`
	Hint       string `json:"hint"`
	Permanent  bool   `json:"permanent"`
	ExitStatus int    `json:"exitStatus,omitempty"` // of the run; 0 if written by an older version
}

// FailureOf converts an error to a Failure. Its texts are bounded: they may list all of what a machine lacks, which are
// as many things as a MachineConfig may ask for.
func FailureOf(err error) *Failure {
	kind := fault.KindOf(err)
	return &Failure{Message: brief(err.Error(), maxMessage), Hint: brief(fault.HintOf(err), maxMessage), Permanent: !kind.Transient(), ExitStatus: kind.ExitStatus()}
}

// brief returns a text of at most about max bytes. It ends a longer one between two of the parts that it lists, if there
// are any, and says how much more there is.
func brief(text string, max int) string {
	if len(text) <= max {
		return text
	}
	kept := strings.ToValidUTF8(text[:max], "")
	if i := strings.LastIndex(kept, "; "); i > max/2 {
		kept = kept[:i]
	}
	return fmt.Sprintf("%s; and more, of %d bytes", kept, len(text)-len(kept))
}

// Duration is how long one named step took.
type Duration struct {
	Name    string       `json:"name"`
	Seconds float64      `json:"seconds"`
	BootID  pid1.StartID `json:"bootID,omitempty"` // of the start in which it ran
	At      float64      `json:"at,omitempty"`     // start, in seconds after that boot's kernel started; 0 if unknown
	Bytes   int64        `json:"bytes,omitempty"`  // transferred
	Failed  int          `json:"failed,omitempty"` // number of failed tries
	Tries   []Try        `json:"tries,omitempty"`  // the last failed tries
}

func (j Journal) stampFile(name string) string { return filepath.Join(filepath.Dir(j.Path), name) }

// stamp creates a stamp durably. It is called before the journal that requires it is written.
func (j Journal) stamp(name string) error {
	if _, err := os.Lstat(j.stampFile(name)); err == nil {
		return nil
	}
	err := hostfiles.MakeDir(j.Disk, filepath.Dir(j.Path), 0o755)
	if err == nil {
		err = hostfiles.Replace(j.Disk, j.stampFile(name), nil, 0o644)
	}
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot record the %s in %s: %w", name, filepath.Dir(j.Path), err).
			WithHint("free space on the file system of %s; nothing was changed", filepath.Dir(j.Path))
	}
	return nil
}

// Unstamp removes a stamp, if there is one. It does not sync: if a power cut brings the stamp back, the unit only
// reads the journal once more in the next boot.
func (j Journal) Unstamp(name string) error {
	if _, err := os.Lstat(j.stampFile(name)); err != nil {
		return nil
	}
	if err := j.Disk.Remove(j.stampFile(name)); err != nil {
		return fault.New(fault.CannotWrite, "cannot record the end of the %s in %s: %w", name, filepath.Dir(j.Path), err).
			WithHint("make %s writable; the next boot records it", filepath.Dir(j.Path))
	}
	return nil
}

// formatVersion is the journal format that this program writes and reads. No release has written formats 1 to 3, in
// which the target's files had contents instead of digests, and features had keys of their own.
const formatVersion = 4

// Journal keeps one JournalContent in a file, which each write replaces atomically and durably.
type Journal struct {
	Path string
	Disk hostfiles.Disk
}

// StateDir is the directory of pivot's persistent state on a host.
const StateDir = "/var/lib/pivot"

// JournalIn returns the journal of the host with the given root directory. It is in /var, which
// all deployments share, so it survives the change of the system.
func JournalIn(root string) Journal {
	return Journal{Path: filepath.Join(root, StateDir, "journal.json"), Disk: hostfiles.OS{}}
}

// Load reads the content. Without a journal it returns one in PhaseIdle.
func (j Journal) Load() (JournalContent, error) {
	data, err := j.file().Read()
	if errors.Is(err, fs.ErrNotExist) {
		return JournalContent{Format: formatVersion, Phase: PhaseIdle}, nil
	}
	if err != nil {
		return JournalContent{}, err
	}
	return j.Parse(data)
}

// Parse decodes a journal, which may come from another machine.
func (j Journal) Parse(data []byte) (JournalContent, error) {
	var r JournalContent
	if err := j.file().Parse(data, &r); err != nil {
		return JournalContent{}, err
	}
	return r, nil
}

// CheckWritable returns an error if the journal's file system is read-only. It writes nothing.
func (j Journal) CheckWritable() error {
	if err := hostfiles.CheckWritable(filepath.Dir(j.Path)); err != nil {
		return fault.New(fault.CannotWrite, "cannot write journal: %w", err)
	}
	return nil
}

func (j Journal) file() hostfiles.StateFile {
	return hostfiles.StateFile{Path: j.Path, Name: "journal " + j.Path, Format: formatVersion, Disk: j.Disk, Mode: 0o644,
		Remedy: journalRemedy}
}

const journalRemedy = "move the file away to start over; the host itself says what is deployed"

// Save replaces the content durably: after it returns, it survives a power cut. The files of its digests must be stored
// already; all others are removed. A stamp is made before the content that requires it is written, and removed after
// the content that does not.
func (j Journal) Save(r JournalContent) error {
	r.Format = formatVersion
	before, err := j.Load()
	if err != nil {
		return err
	}
	for _, name := range r.stamps() {
		if err := j.stamp(name); err != nil {
			return err
		}
	}
	if err := j.replace(r); err != nil {
		return err
	}
	for _, name := range before.stamps() {
		if !slices.Contains(r.stamps(), name) {
			if err := j.Unstamp(name); err != nil {
				return err
			}
		}
	}
	return j.release(r.kept())
}

// replace replaces the file. If the whole would be too large, it leaves out the oldest accounts of the history: what a
// transaction needs to end is more than what earlier ones were like.
func (j Journal) replace(r JournalContent) error {
	for {
		err := j.file().Save(r)
		if err == nil || len(r.History) == 0 {
			return err
		}
		if _, large := j.file().Encode(r); large == nil {
			return err
		}
		r.History = r.History[1:]
	}
}

// checkRoom returns an error if a transaction that begins with this content could not be journaled up to its end.
func (j Journal) checkRoom(r JournalContent) error {
	r.History = nil
	file := j.file()
	file.Max = hostfiles.MaxState - roomToEnd
	_, err := file.Encode(r)
	return err
}
