package main

import (
	"io"
	"os"

	"golang.org/x/term"

	"machine-pivot/internal/status"
)

// unknownWidth is that of a terminal which does not say how wide it is, as a serial line.
const unknownWidth = 80

// screenOf is the terminal that w is; nil if it is none, or one that cannot erase a line.
func screenOf(w io.Writer) *status.Screen {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &status.Screen{W: f, Width: func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 {
			return unknownWidth
		}
		return width
	}}
}
