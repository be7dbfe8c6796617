package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"machine-pivot/internal/hostfiles"
)

// grubWriter writes to GRUB's directory.
type grubWriter struct {
	Disk hostfiles.Disk
	Dir  string // GRUB's directory, at a path where it is writable
	// Flush writes all of the directory's file system to where GRUB finds it. GRUB does not read
	// the journal of a file system, so it may not see what was only synced.
	Flush func() error
}

// grubEntry matches the names of entries that need no quoting, neither in an environment block nor in a
// script.
var grubEntry = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)

// set has GRUB start the entry of the boot entry file once. After a crash at any point, GRUB starts its default, or the
// entry exactly once. The last write names the entry, and all that the hook needs is on the disk before. GRUB takes the
// name back on the disk before it starts the entry.
func (l grubLoader) set(w grubWriter, file string) error {
	name := strings.TrimSuffix(file, ".conf")
	if !grubEntry.MatchString(name) {
		return fmt.Errorf("cannot start boot entry %q once: GRUB would not find that name", file)
	}
	block, variable := systemBlock, systemVariable
	if l.hook != "" {
		block, variable = ownBlock, ownVariable
		if err := l.install(w); err != nil {
			return fmt.Errorf("cannot start a boot entry once: %w", err)
		}
	}
	err := w.setVariable(block, variable, name)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot start a boot entry once: %w", err), l.clear(w))
	}
	return nil
}

// check returns an error if set could not use what is there: it reads what set reads, and makes of it what set
// writes. It writes nothing.
func (l grubLoader) check(w grubWriter) error {
	name := strings.Repeat("x", longestEntry)
	if l.hook == "" {
		_, err := w.withVariable(systemBlock, systemVariable, name)
		return err
	}
	if _, _, err := w.read(ownBlock); err != nil { // set replaces it
		return err
	}
	_, _, err := w.withHook(l.hook)
	return err
}

// longestEntry is more than the length of libostree's names of boot entries, for which an environment block
// must have room.
const longestEntry = 64

// install writes the hook and its environment block, in which no entry is named.
func (l grubLoader) install(w grubWriter) error {
	if err := w.clear(); err != nil {
		return err
	}
	text, mode, err := w.withHook(l.hook)
	if err != nil {
		return err
	}
	err = hostfiles.Replace(w.Disk, filepath.Join(w.Dir, ownBlock), emptyBlock(), grubMode)
	if err == nil {
		err = hostfiles.Replace(w.Disk, filepath.Join(w.Dir, l.hook), []byte(text), mode)
	}
	if err == nil {
		err = w.Flush()
	}
	return err
}

// withHook returns what a file has to have with the hook, and its mode.
func (w grubWriter) withHook(name string) (text string, mode fs.FileMode, err error) {
	if text, mode, err = w.read(name); err != nil {
		return "", 0, err
	}
	if text, err = withHook(text); err != nil {
		return "", 0, fmt.Errorf("cannot change GRUB's %s: %w", name, err)
	}
	return text, mode, nil
}

// grubMode is the mode that bootupd gives to files in GRUB's directory.
const grubMode = 0o600

// clear undoes set. It is a no-op if there is nothing to undo, also where set could do nothing.
func (l grubLoader) clear(w grubWriter) error {
	if l.hook != "" {
		if !grubHooked(w.Dir) {
			return nil
		}
		return w.removeHook()
	}
	text, err := os.ReadFile(filepath.Join(w.Dir, systemBlock))
	if errors.Is(err, fs.ErrNotExist) || err == nil && blockVariable(text, systemVariable) == "" {
		return nil
	}
	if err := w.setVariable(systemBlock, systemVariable, ""); err != nil {
		return fmt.Errorf("cannot undo the boot entry that is started once: %w", err)
	}
	return nil
}

// grubHooked reports whether a directory of GRUB has a hook or something that belongs to one.
func grubHooked(dir string) bool {
	// Also under the name that it has until it is whole, which is left by a crash.
	if blocks, err := filepath.Glob(filepath.Join(dir, "*"+ownBlock+"*")); err == nil && len(blocks) > 0 {
		return true
	}
	for _, name := range []string{grubCustomFile, grubUserFile} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil && bytes.Contains(text, []byte(beginHook)) {
			return true
		}
	}
	return false
}

// removeHook removes the hook, in whatever file it is, and what belongs to it. The administrator's lines
// stay. First it has the hook start nothing, so that a crash leaves no entry that would be started.
func (w grubWriter) removeHook() error {
	if err := w.remove(); err != nil {
		return fmt.Errorf("cannot remove the hook from GRUB's configuration: %w", err)
	}
	return nil
}

func (w grubWriter) remove() error {
	if err := w.clear(); err != nil {
		return err
	}
	for _, name := range []string{grubCustomFile, grubUserFile} {
		if err := w.unhook(name); err != nil {
			return err
		}
	}
	if err := hostfiles.Remove(w.Disk, filepath.Join(w.Dir, ownBlock)); err != nil {
		return err
	}
	return w.Flush()
}

// clear has the hook start nothing, if there is one. GRUB, too, finds no variable in a damaged block.
func (w grubWriter) clear() error {
	text, _, err := w.read(ownBlock)
	if err != nil || blockVariable([]byte(text), ownVariable) == "" {
		return err
	}
	return w.setVariable(ownBlock, ownVariable, "")
}

// unhook removes the hook from a file, and the file if nothing else is in it; and what a crash has left of an
// earlier change.
func (w grubWriter) unhook(name string) error {
	if err := hostfiles.RemoveLeftover(w.Disk, filepath.Join(w.Dir, name)); err != nil {
		return err
	}
	text, mode, err := w.read(name)
	if err != nil {
		return err
	}
	rest, err := withoutHook(text)
	switch path := filepath.Join(w.Dir, name); {
	case err != nil:
		return fmt.Errorf("cannot change GRUB's %s: %w", name, err)
	case rest == text:
		return nil
	case rest == "":
		return hostfiles.Remove(w.Disk, path)
	default:
		return hostfiles.Replace(w.Disk, path, []byte(rest), mode)
	}
}

// read returns a file's content and mode; "" if there is none.
func (w grubWriter) read(name string) (string, fs.FileMode, error) {
	path := filepath.Join(w.Dir, name)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", grubMode, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	var text []byte
	if err == nil {
		text, err = hostfiles.ReadSettings("/", path)
	}
	if err != nil {
		return "", 0, fmt.Errorf("cannot read GRUB's %s: %w", name, err)
	}
	return string(text), info.Mode().Perm(), nil
}

// setVariable sets a variable in an environment block, in place and durably. It writes nothing if
// the variable has that value.
func (w grubWriter) setVariable(file, name, value string) error {
	block, err := w.withVariable(file, name, value)
	if block == nil || err != nil {
		return err
	}
	path := filepath.Join(w.Dir, file)
	err = w.Disk.Overwrite(path, block)
	if err == nil {
		err = w.Disk.Sync(path)
	}
	if err != nil {
		return fmt.Errorf("cannot write GRUB's %s: %w", file, err)
	}
	return nil
}

// withVariable returns the content that an environment block has to have for a variable; nil if the variable has
// that value.
func (w grubWriter) withVariable(file, name, value string) ([]byte, error) {
	text, _, err := w.read(file)
	if err != nil || text != "" && blockVariable([]byte(text), name) == value {
		return nil, err
	}
	block, err := blockWithVariable([]byte(text), name, value)
	if err != nil {
		return nil, fmt.Errorf("cannot use GRUB's %s: %w", file, err)
	}
	return block, nil
}
