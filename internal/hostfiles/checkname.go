package hostfiles

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckName returns an error for a path that no file system can have: a name in it, or the whole, is
// too long, or it contains a NUL. The rule holds for the target of a link, too.
func CheckName(name string) error {
	switch {
	case strings.ContainsRune(name, 0):
		return errors.New("it contains a NUL")
	case len(name) >= unix.PathMax:
		return fmt.Errorf("it has %d bytes, at most %d are possible", len(name), unix.PathMax-1)
	}
	for part := range strings.SplitSeq(path.Clean(name), "/") {
		if len(part) > unix.NAME_MAX {
			return fmt.Errorf("a name in it has %d bytes, at most %d are possible", len(part), unix.NAME_MAX)
		}
	}
	return nil
}
