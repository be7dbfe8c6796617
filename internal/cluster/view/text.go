package view

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"machine-pivot/internal/printable"
)

// MinWidth is the smallest width of the text, in characters. A narrower terminal breaks the lines itself.
const MinWidth = 60

// WriteText writes the status for people, in lines of at most width characters; 0: as long as they are.
func (s Status) WriteText(w io.Writer, width int) {
	if width > 0 {
		width = max(width, MinWidth)
	}
	p := page{w: w, width: width}
	for i, pool := range s.Pools {
		if i > 0 {
			p.line("", "")
		}
		p.pool(pool)
	}
	if len(s.Pools) == 0 {
		p.line("", "no pools")
	}
	if len(s.Unpooled) > 0 {
		p.line("", "")
		p.line("", "in no pool")
		p.machines(s.Unpooled, "")
	}
	for i, missing := range s.Missing {
		if i == 0 {
			p.line("", "")
		}
		p.line("", "not shown: "+missing)
	}
}

// page writes lines of a bounded width.
type page struct {
	w     io.Writer
	width int
}

// line writes text, broken between words if it is longer than the page. Lines after the first are indented two
// more columns.
func (p page) line(indent, text string) {
	first := true
	for {
		room := p.width - utf8.RuneCountInString(indent)
		if p.width == 0 || utf8.RuneCountInString(text) <= room {
			fmt.Fprintln(p.w, strings.TrimRight(indent+text, " "))
			return
		}
		head := cut(text, room)
		if at := strings.LastIndexByte(head, ' '); at > 0 {
			head = head[:at]
		}
		fmt.Fprintln(p.w, indent+head)
		text = strings.TrimLeft(text[len(head):], " ")
		if first {
			indent, first = indent+"  ", false
		}
	}
}

// cut returns the first n characters.
func cut(text string, n int) string {
	for at := range text {
		if n == 0 {
			return text[:at]
		}
		n--
	}
	return text
}

// short returns a text that is at most n characters long: its beginning and its end, because names of rendered
// MachineConfigs differ at the end.
func short(text string, n int) string {
	count := utf8.RuneCountInString(text)
	if count <= n {
		return text
	}
	runes := []rune(text)
	tail := (n - 1) / 2
	return string(runes[:n-1-tail]) + "…" + string(runes[count-tail:])
}

func (p page) pool(pool Pool) {
	c := pool.Counts
	head := fmt.Sprintf("%s: %s, %d of %d nodes have the target", pool.Name, pool.State, c.Updated, c.Nodes)
	head += some(c.Working, "working") + some(c.Degraded, "degraded") + some(c.Unavailable, "unavailable")
	p.line("", head)
	if pool.Target != "" {
		p.line("  ", "target    "+pool.Target)
	}
	if pool.Waiting != "" {
		p.line("  ", "waits     "+pool.Waiting)
	}
	if text := pool.Expected.String(); text != "" {
		p.line("  ", "expected  "+text)
	}
	for _, problem := range pool.Problems {
		p.line("  ", "problem   "+problem)
	}
	p.machines(pool.Machines, pool.Target)
}

// some names a number, unless it is 0.
func some(n int, what string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d %s", n, what)
}

// Widths of the columns of nodes: the name has what is left, up to its longest.
const (
	stateWidth    = 14 // Unreconcilable
	progressWidth = 26
	minName       = 12
)

func (p page) machines(all []Machine, target string) {
	widest := minName
	for _, m := range all {
		widest = max(widest, utf8.RuneCountInString(m.Name))
	}
	rest := 16 // of a configuration's name
	if p.width > 0 {
		widest = min(widest, p.width-2-stateWidth-progressWidth-rest-3)
		rest = p.width - 2 - widest - stateWidth - progressWidth - 3
	} else {
		rest = 1 << 10
	}
	for _, m := range all {
		p.row(m, target, widest, rest)
	}
}

func (p page) row(m Machine, target string, name, rest int) {
	state := m.State
	if state == "" {
		state = "-"
	}
	text := fmt.Sprintf("  %-*s %-*s %-*s %s", name, short(m.Name, name), stateWidth, short(state, stateWidth),
		progressWidth, short(progress(m), progressWidth), short(configs(m, target), rest))
	fmt.Fprintln(p.w, strings.TrimRight(text, " "))
	if m.Reason != "" {
		p.line("    ", m.Reason)
	}
}

// configs returns the MachineConfig that a node has, or the one that it is given.
func configs(m Machine, target string) string {
	name, arrow := m.Current, ""
	if m.Desired != "" && m.Desired != m.Current {
		name, arrow = m.Desired, "→ "
	}
	switch name {
	case "":
		return "not maintained"
	case target:
		return arrow + "target"
	}
	return arrow + name
}

// progress returns where a node is.
func progress(m Machine) string {
	var parts []string
	if m.Step != "" && m.Step != "rest" {
		step := m.Step
		if m.Percent > 0 {
			step += fmt.Sprintf(" %d%%", m.Percent)
		}
		if m.BytesPulled > 0 {
			step += ", " + printable.Size(m.BytesPulled)
		}
		parts = append(parts, step)
	}
	if !m.Ready {
		parts = append(parts, "not ready")
	}
	if m.Cordoned {
		parts = append(parts, "cordoned")
	}
	return strings.Join(parts, ", ")
}
