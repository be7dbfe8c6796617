package rehearse

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	modulesOfDracut = "usr/lib/dracut/modules.txt"
	maxEntryName    = 4096     // PATH_MAX, which the kernel demands
	maxDracutList   = 64 << 10 // bytes of the list of dracut's modules
)

// readArchive reads one archive in the format newc, to its trailer.
func (c *InitramfsContents) readArchive(from *bufio.Reader) error {
	var header [110]byte
	for {
		if _, err := io.ReadFull(from, header[:]); err != nil {
			return fmt.Errorf("an archive in it ends early: %w", noEOF(err))
		}
		if magic := string(header[:6]); magic != "070701" && magic != "070702" {
			return fmt.Errorf("an archive in it is damaged: %q is no header", magic)
		}
		size, err := cpioField(header[:], 6)
		if err != nil {
			return err
		}
		length, err := cpioField(header[:], 11)
		if err != nil {
			return err
		}
		if length == 0 || length > maxEntryName {
			return fmt.Errorf("an archive in it is damaged: a name has %d bytes", length)
		}
		name := make([]byte, cpioPadded(len(header)+int(length))-len(header))
		if _, err := io.ReadFull(from, name); err != nil {
			return fmt.Errorf("an archive in it ends early: %w", noEOF(err))
		}
		file := strings.TrimPrefix(strings.TrimRight(string(name[:length]), "\x00"), "./")
		if file == "TRAILER!!!" {
			return nil
		}
		if err := c.readFile(from, file, int64(size)); err != nil {
			return fmt.Errorf("an archive in it ends early: %w", noEOF(err))
		}
	}
}

// readFile reads the content of a file, with its padding.
func (c *InitramfsContents) readFile(from io.Reader, name string, size int64) error {
	whole := size + (4-size%4)%4
	switch {
	case name == modulesOfDracut && size <= maxDracutList:
		list := make([]byte, whole)
		if _, err := io.ReadFull(from, list); err != nil {
			return err
		}
		c.Dracut = map[string]bool{}
		for _, module := range strings.Fields(string(list[:size])) {
			c.Dracut[module] = true
		}
		return nil
	case name == program && size > 0: // a hard link's content stands once
		return c.readPivot(from, size, whole-size)
	case strings.HasSuffix(name, "/systemd-cryptsetup"), strings.HasSuffix(name, "bin/cryptsetup"):
		c.Opens = true
	case strings.Contains(name, ".ko"):
		c.Modules[moduleName(name)] = true
	}
	_, err := io.CopyN(io.Discard, from, whole)
	return err
}

func (c *InitramfsContents) readPivot(from io.Reader, size, padding int64) error {
	hash := sha256.New()
	_, err := io.CopyN(hash, from, size)
	if err == nil {
		_, err = io.CopyN(io.Discard, from, padding)
	}
	c.Pivot = (*Sum)(hash.Sum(nil))
	return err
}

// cpioField returns the nth number of a header: eight hexadecimal digits each.
func cpioField(header []byte, n int) (uint64, error) {
	digits := string(header[6+8*n : 6+8*n+8])
	value, err := strconv.ParseUint(digits, 16, 32)
	if err != nil {
		return 0, fmt.Errorf("an archive in it is damaged: %q is no number", digits)
	}
	return value, nil
}

func cpioPadded(n int) int { return (n + 3) &^ 3 }

// noEOF returns an error for an end where more was expected.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
