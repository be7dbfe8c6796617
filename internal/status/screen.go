package status

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// Screen is a terminal whose last line can show how something goes. What is written to
// it appears above that line.
type Screen struct {
	W     io.Writer
	Width func() int // in columns, as it is now

	mu   sync.Mutex
	line string
}

// erase takes away what stands in the last line.
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

// Show replaces the last line by one that is made for the terminal's width.
func (s *Screen) Show(line func(width int) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = line(s.Width())
	_, _ = io.WriteString(s.W, erase+s.line) // a terminal that is gone is no reason to stop
}

// End takes the last line away.
func (s *Screen) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		s.line = ""
		_, _ = io.WriteString(s.W, erase)
	}
}

// The least and the most columns that a bar is shown with.
const (
	leastBar = 10
	mostBar  = 40
)

// fitted is a line of at most width-1 columns, for one that fills the last column may
// wrap: a label, a bar and as many fields as there is room for, the first ones before all.
// The texts must be ASCII. percent is that of the bar; less than 0 is none.
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

// bar is a bar of so many columns.
func bar(columns, percent int) string {
	full := min(columns*percent/100, columns)
	text := strings.Repeat("=", full)
	if full > 0 && full < columns {
		text = text[:full-1] + ">"
	}
	return text + strings.Repeat(" ", columns-full)
}
