package live

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
)

// The journal of a change and the staged files are in the /etc that changes. On its file system staged files can be
// renamed into place, and another deployment that is booted meanwhile is not changed. If libostree merges an /etc with
// half of a change into a new deployment, the change is finished there.
const (
	dir         = "/etc/pivot"
	JournalPath = dir + "/live.json"
	stagingPath = dir + "/live"
)

const formatVersion = 1

// journal is the content of the file. Only root can read it, as it has the contents.
type journal struct {
	Format int `json:"format"`
	Change
}

func (r *Runner) path(path string) string { return filepath.Join(r.Root, path) }

// Interrupted reports whether a machine has a change that was neither finished nor taken back.
func Interrupted(root string) bool {
	_, err := os.Lstat(filepath.Join(root, JournalPath))
	return err == nil
}

// save writes the journal durably.
func (r *Runner) save(c Change) error {
	if err := r.file().Save(journal{formatVersion, c}); err != nil {
		return fmt.Errorf("cannot change the running system: %w", err)
	}
	return nil
}

// maxJournal is the maximum size of the journal, which has the old and the new contents of a change.
const maxJournal = 32 << 20

// reserve is the room for what is written into the journal later: the reason for a rollback, each byte of
// which may be escaped, and that the change is done.
const (
	maxFailure = 4 << 10
	reserve    = 6*maxFailure + 1<<10
)

// Room is the room in the journal of a change for what the change replaces.
type Room struct{ left int }

// RoomFor returns the room that remains beside a change that has no Old yet. It returns false if the
// change alone is too large for the journal.
func RoomFor(c Change) (*Room, bool, error) {
	data, err := json.MarshalIndent(journal{formatVersion, c}, "", "  ")
	left := maxJournal - reserve - len(data)
	return &Room{left}, left >= 0, err
}

// Take takes the room for an Old, and reports whether there was enough.
func (r *Room) Take(f hostfiles.File) (bool, error) {
	data, err := json.MarshalIndent(f.Entry, "        ", "  ")
	size := len(data) + base64.StdEncoding.EncodedLen(len(f.Content)) + len("        \"content\": \"\",\n      \"old\": ,\n")
	if err != nil || size > r.left {
		return false, err
	}
	r.left -= size
	return true, nil
}

func (r *Runner) file() hostfiles.StateFile {
	return hostfiles.StateFile{Root: r.Root, Path: JournalPath, Name: "its journal " + JournalPath, Max: maxJournal, Format: formatVersion, Disk: r.Disk, Mode: 0o600,
		Remedy: "move the file away, then apply the MachineConfig again"}
}

// load reads the journal. found is false if there is none.
func (r *Runner) load() (c Change, found bool, err error) {
	var j journal
	err = r.file().Decode(&j)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("cannot finish the change of the running system: %w", err)
	}
	return j.Change, true, nil
}

// end removes the journal of a change that is finished or taken back.
func (r *Runner) end() error {
	err := r.clean()
	if err == nil {
		err = r.file().Remove()
	}
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot end the journal of the change of the running system: %w", err).WithHint(hint)
	}
	return nil
}

// clean removes the staged files and leftovers of a crash.
func (r *Runner) clean() error {
	staged, err := os.ReadDir(r.path(stagingPath))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there := err == nil
	for _, file := range staged {
		if err := r.Disk.Remove(filepath.Join(r.path(stagingPath), file.Name())); err != nil {
			return err
		}
	}
	if there {
		if err := r.Disk.Remove(r.path(stagingPath)); err != nil {
			return err
		}
	}
	return r.file().RemoveLeftover()
}
