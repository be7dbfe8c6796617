package hostfiles

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
)

// MaxState is the maximum size of a state file, and of a file with settings, in bytes.
const MaxState = 16 << 20

// StateFile is one of the files in which pivot keeps what it knows about a machine, such as the journal. The rule for
// all of them: only a regular file of a bounded size is read, a link is not followed. What cannot be used is an error
// of kind fault.Refused that names the remedy. A file that cannot be used, as that of a newer program, is not written
// over either.
type StateFile struct {
	Root   string // root directory of the machine; "" if Path is a path of this process
	Path   string
	Name   string // for messages; "": Path
	Remedy string // what to do about a file that cannot be used
	Max    int    // its size is at most this, in bytes; 0: MaxState
	// Format is the value of "format" in its JSON, which tells other programs how to read it;
	// 0: it has none.
	Format int

	// For Save, Remove and RemoveLeftover only.
	Disk Disk
	Mode fs.FileMode
}

func (s StateFile) called() string { return cmp.Or(s.Name, s.Path) }

func (s StateFile) limit() int { return cmp.Or(s.Max, MaxState) }

func (s StateFile) onDisk() string { return filepath.Join(s.Root, s.Path) }

// Read returns the content. The error wraps fs.ErrNotExist if there is no file.
func (s StateFile) Read() ([]byte, error) {
	data, err := readRegular(s.onDisk(), s.limit(), unix.O_NOFOLLOW)
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return data, err
	case errors.Is(err, fs.ErrPermission): // the file may be sound
		return nil, fmt.Errorf("cannot read %s: %w", s.called(), err)
	}
	return nil, s.Unusable(err)
}

// Decode reads the file, and decodes its JSON into value.
func (s StateFile) Decode(value any) error {
	data, err := s.Read()
	if err != nil {
		return err
	}
	return s.Parse(data, value)
}

// Parse decodes the content of such a file, which may come from another machine, into value.
func (s StateFile) Parse(data []byte, value any) error {
	var has struct {
		Format int `json:"format"`
	}
	var err error
	if s.Format != 0 { // first: in another format, anything else may differ
		err = json.Unmarshal(data, &has)
	}
	switch {
	case err != nil:
	case has.Format > s.Format:
		err = fmt.Errorf("its format is %d, this program knows those up to %d", has.Format, s.Format)
	case has.Format < s.Format:
		err = fmt.Errorf("its format is %d, this program knows only %d", has.Format, s.Format)
	default:
		err = json.Unmarshal(data, value)
	}
	if err != nil {
		return s.Unusable(err)
	}
	return nil
}

// Unusable returns the error for content that cannot be used.
func (s StateFile) Unusable(why error) error {
	return fault.New(fault.Refused, "cannot use %s: %w", s.called(), why).WithHint("%s", s.Remedy)
}

// Encode returns the content for a value. Its "format" must be s.Format. It returns an error for what Read could not
// read again.
func (s StateFile) Encode(value any) ([]byte, error) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", s.called(), err)
	}
	data = append(data, '\n')
	if len(data) > s.limit() {
		return nil, fault.New(fault.Refused, "cannot write %s: it would have %d bytes, at most %d are possible", s.called(), len(data), s.limit()).
			WithHint("change less at once: apply a MachineConfig with a part of the files first")
	}
	return data, nil
}

// Save replaces the file, durably as Replace does. It makes the directory if there is none.
func (s StateFile) Save(value any) error {
	data, err := s.Encode(value)
	if err != nil {
		return err
	}
	switch err := s.Decode(&struct{}{}); {
	case errors.Is(err, fs.ErrNotExist): // otherwise the name of the directory is durable
		if err := MakeDir(s.Disk, filepath.Dir(s.onDisk()), 0o755); err != nil {
			return fault.New(fault.CannotWrite, "cannot write %s: %w", s.called(), err)
		}
	case err != nil:
		return err
	}
	if err := Replace(s.Disk, s.onDisk(), data, s.Mode); err != nil {
		return fault.New(fault.CannotWrite, "cannot write %s: %w", s.called(), err)
	}
	return nil
}

// Remove removes the file durably, and what a killed Save has left.
func (s StateFile) Remove() error {
	if err := Remove(s.Disk, s.onDisk()); err != nil {
		return fault.New(fault.CannotWrite, "cannot remove %s: %w", s.called(), err)
	}
	return nil
}

// RemoveLeftover removes what a killed Save has left beside the file.
func (s StateFile) RemoveLeftover() error {
	return removeIfThere(s.Disk, temporaryOf(s.onDisk()))
}

func removeIfThere(disk Disk, path string) error {
	if _, err := os.Lstat(path); err != nil { // without an effect on the disk
		return nil
	}
	return disk.Remove(path)
}

// ReadSettings returns the content of a file that an administrator writes on the host with a root directory: a regular
// file, or a link to one. The error wraps fs.ErrNotExist if there is none.
func ReadSettings(root, name string) ([]byte, error) {
	at, err := Locate(root, name)
	if err != nil {
		return nil, err
	}
	return readRegular(at, MaxState, 0)
}

// ReadDropIn returns the content of a file in a directory where other programs and persons put files. It is read as by
// the host with the root directory, and only if it is a regular file or a link to one. A link to the null device is an
// empty file. The error wraps fs.ErrNotExist if there is none, or a link to nothing.
func ReadDropIn(root, name string) ([]byte, error) {
	data, err := ReadSettings(root, name)
	if errors.Is(err, ErrNotRegular) {
		if at, lost := Locate(root, name); lost == nil && isNull(at) {
			return nil, nil
		}
	}
	return data, err
}

// isNull reports whether a path is, or leads to, the null device.
func isNull(path string) bool {
	info, err := os.Stat(path)
	null, nerr := os.Stat(os.DevNull)
	return err == nil && nerr == nil && os.SameFile(info, null)
}

// readRegular returns the content of a regular file of at most max bytes. Opening a FIFO does not
// wait for a writer, and nothing is read from what is no regular file.
func readRegular(name string, max, flags int) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|flags, 0)
	if errors.Is(err, unix.ELOOP) && flags&unix.O_NOFOLLOW != 0 {
		return nil, ErrLink
	}
	if errors.Is(err, unix.ENXIO) { // a socket, or a device that is not there
		return nil, ErrNotRegular
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	data, whole, err := readAtMost(file, info.Size(), max)
	if err == nil && !whole {
		err = fmt.Errorf("it has more than %d bytes", max)
	}
	return data, err
}

// ErrNotRegular is the error for a directory, a FIFO, a socket or a device in place of a file.
var ErrNotRegular = errors.New("it is not a regular file")
