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

// StateFile is one of the files in which pivot keeps what it knows about a machine, such as the
// journal. The rule for all of them: only a regular file of a bounded size is read, a link is not
// followed, and what cannot be used is an error of kind fault.Refused that names the remedy.
type StateFile struct {
	Root   string // root directory of the machine; "" if Path is a path of this process
	Path   string
	Name   string // for messages; "": Path
	Remedy string // what to do about a file that cannot be used
	Max    int    // its size is at most this, in bytes; 0: MaxState
}

func (s StateFile) called() string { return cmp.Or(s.Name, s.Path) }

func (s StateFile) limit() int { return cmp.Or(s.Max, MaxState) }

// Read returns the content. The error wraps fs.ErrNotExist if there is no file.
func (s StateFile) Read() ([]byte, error) {
	data, err := readRegular(filepath.Join(s.Root, s.Path), s.limit(), unix.O_NOFOLLOW)
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
	if err := json.Unmarshal(data, value); err != nil {
		return s.Unusable(err)
	}
	return nil
}

// Unusable returns the error for content that cannot be used.
func (s StateFile) Unusable(why error) error {
	return fault.New(fault.Refused, "cannot use %s: %w", s.called(), why).WithHint("%s", s.Remedy)
}

// CheckSize returns an error if the file could not be read again with the given content.
func (s StateFile) CheckSize(content []byte) error {
	if len(content) > s.limit() {
		return fault.New(fault.Refused, "%s would have %d bytes, at most %d are possible", s.called(), len(content), s.limit()).
			WithHint("change less at once")
	}
	return nil
}

// ReadSettings returns the content of a file that an administrator writes: a regular file, or a
// link to one. The error wraps fs.ErrNotExist if there is none.
func ReadSettings(name string) ([]byte, error) { return readRegular(name, MaxState, 0) }

// readRegular returns the content of a regular file of at most max bytes. Opening a FIFO does not
// wait for a writer, and nothing is read from what is no regular file.
func readRegular(name string, max, flags int) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|flags, 0)
	if errors.Is(err, unix.ELOOP) && flags&unix.O_NOFOLLOW != 0 {
		return nil, ErrLink
	}
	if errors.Is(err, unix.ENXIO) { // a socket, or a device that is not there
		return nil, errNotRegular
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
		return nil, errNotRegular
	}
	data, whole, err := readAtMost(file, info.Size(), max)
	if err == nil && !whole {
		err = fmt.Errorf("it has more than %d bytes", max)
	}
	return data, err
}

// errNotRegular is the error for a directory, a FIFO, a socket or a device in place of a file.
var errNotRegular = errors.New("it is not a regular file")
