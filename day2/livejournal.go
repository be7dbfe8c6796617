package day2

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/projection"
)

// The journal of a change and the staged files are in the /etc that changes. On its file system staged files can be
// renamed into place, and another deployment that is booted meanwhile is not changed. If libostree merges an /etc with
// half of a change into a new deployment, the change is finished there.
const (
	LiveJournalPath = projection.OwnDir + "/live.json"
	liveStaging     = projection.OwnDir + "/live"
)

const liveFormat = 1

// liveJournal is the content of the file. Only root can read it, as it has the contents.
type liveJournal struct {
	Format int `json:"format"`
	LiveChange
}

func (r *LiveRunner) path(path string) string { return filepath.Join(r.Root, path) }

// LiveInterrupted reports whether a machine has a change that was neither finished nor taken back.
func LiveInterrupted(root string) bool {
	_, err := os.Lstat(filepath.Join(root, LiveJournalPath))
	return err == nil
}

// save writes the journal durably.
func (r *LiveRunner) save(c LiveChange) error {
	if err := r.file().Save(liveJournal{liveFormat, c}); err != nil {
		return fmt.Errorf("cannot change the running system: %w", err)
	}
	return nil
}

// maxLiveJournal is the maximum size of the journal, which has the old and the new contents of a change.
const maxLiveJournal = 32 << 20

// liveReserve is the room for what is written into the journal later: the reason for a rollback, each byte of
// which may be escaped, and that the change is done.
const (
	maxLiveFailure = 4 << 10
	liveReserve    = 6*maxLiveFailure + 1<<10
)

// LiveRoom is the room in the journal of a change for what the change replaces.
type LiveRoom struct{ left int }

// LiveRoomFor returns the room that remains beside a change that has no Old yet. It returns false if the
// change alone is too large for the journal.
func LiveRoomFor(c LiveChange) (*LiveRoom, bool, error) {
	data, err := json.MarshalIndent(liveJournal{liveFormat, c}, "", "  ")
	left := maxLiveJournal - liveReserve - len(data)
	return &LiveRoom{left}, left >= 0, err
}

// Take takes the room for an Old, and reports whether there was enough.
func (r *LiveRoom) Take(f hostfiles.File) (bool, error) {
	data, err := json.MarshalIndent(f.Entry, "        ", "  ")
	size := len(data) + base64.StdEncoding.EncodedLen(len(f.Content)) + len("        \"content\": \"\",\n      \"old\": ,\n")
	if err != nil || size > r.left {
		return false, err
	}
	r.left -= size
	return true, nil
}

func (r *LiveRunner) file() hostfiles.StateFile {
	return hostfiles.StateFile{Root: r.Root, Path: LiveJournalPath, Name: "its journal " + LiveJournalPath, Max: maxLiveJournal, Format: liveFormat, Disk: r.Disk, Mode: 0o600,
		Remedy: "move the file away, then apply the MachineConfig again"}
}

// load reads the journal. found is false if there is none.
func (r *LiveRunner) load() (c LiveChange, found bool, err error) {
	var j liveJournal
	err = r.file().Decode(&j)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("cannot finish the change of the running system: %w", err)
	}
	return j.LiveChange, true, nil
}

// end removes the journal of a change that is finished or taken back.
func (r *LiveRunner) end() error {
	err := r.clean()
	if err == nil {
		err = r.file().Remove()
	}
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot end the journal of the change of the running system: %w", err).WithHint(liveHint)
	}
	return nil
}

// clean removes the staged files and leftovers of a crash.
func (r *LiveRunner) clean() error {
	staged, err := os.ReadDir(r.path(liveStaging))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there := err == nil
	for _, file := range staged {
		if err := r.Disk.Remove(filepath.Join(r.path(liveStaging), file.Name())); err != nil {
			return err
		}
	}
	if there {
		if err := r.Disk.Remove(r.path(liveStaging)); err != nil {
			return err
		}
	}
	return r.file().RemoveLeftover()
}
