package cli

import (
	"os"

	"golang.org/x/term"
)

// UnknownWidth is the width of a terminal that does not report it, such as a serial line, in characters.
const UnknownWidth = 80

// Width returns the width of a terminal in characters; 0 if a file is none, or cannot erase a line.
func Width(f *os.File) int {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
		return 0
	}
	if width, _, err := term.GetSize(fd); err == nil && width > 0 {
		return width
	}
	return UnknownWidth
}
