package status

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// Screen is a terminal that can show progress in its last line. Writes appear above that line.
type Screen struct {
	W     io.Writer
	Width func() int // current width in columns

	mu   sync.Mutex
	line string
}

// erase clears the current line of a terminal.
const erase = "\r\x1b[K"

// Write implements io.Writer.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.W.Write(p)
	}
	text := append([]byte(erase), p...)
	if bytes.HasSuffix(p, []byte("\n")) {
		text = append(text, s.line...)
	}
	if _, err := s.W.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Show replaces the last line. line returns it for the terminal's width.
func (s *Screen) Show(line func(width int) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = line(s.Width())
	_, _ = io.WriteString(s.W, erase+s.line) // ignore errors: a closed terminal must not stop the run
}

// End removes the last line.
func (s *Screen) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		s.line = ""
		_, _ = io.WriteString(s.W, erase)
	}
}

// Minimum and maximum width of a bar, in columns.
const (
	leastBar = 10
	mostBar  = 40
)

// fitted returns a line of at most width-1 columns, because one that fills the last column may
// wrap. It has the label, a bar, and as many of the fields as fit, first ones first. All text
// must be ASCII. percent is the length of the bar; no bar is shown if it is negative.
func fitted(width int, label string, percent int, fields []string) string {
	most := max(width-1, 0)
	for n := len(fields); n > 0; n-- {
		text := strings.Join(fields[:n], ", ")
		if len(label)+1+len(text) > most {
			continue
		}
		if room := most - len(label) - len(text) - len(" [] "); percent >= 0 && room >= leastBar {
			return label + " [" + bar(min(room, mostBar), percent) + "] " + text
		}
		return label + " " + text
	}
	text := strings.Join(fields[:min(1, len(fields))], "")
	return text[:min(len(text), most)]
}

// bar returns a progress bar with the given number of columns.
func bar(columns, percent int) string {
	full := min(columns*percent/100, columns)
	text := strings.Repeat("=", full)
	if full > 0 && full < columns {
		text = text[:full-1] + ">"
	}
	return text + strings.Repeat(" ", columns-full)
}
