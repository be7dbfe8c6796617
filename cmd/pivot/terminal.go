package main

import (
	"io"
	"os"

	"golang.org/x/term"

	"machine-pivot/internal/status"
)

// unknownWidth is the width of a terminal that does not report it, such as a serial line.
const unknownWidth = 80

// screenOf returns the terminal at w, or nil if w is not a terminal or cannot erase a line.
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
