package status

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"machine-pivot/internal/printable"
)

// Dimensions of the picture, in pixels.
const (
	svgWidth    = 1120
	svgMargin   = 20
	svgHeader   = 76 // title and legend
	svgAxis     = 24
	svgRow      = 20
	svgBootHead = 24
	svgCharSize = 6.7 // approximate width of a letter at the font size of labels
)

// svgStyle is the style sheet. It must also work in print: a failure has a thick border and a
// cross, not only a color.
const svgStyle = `
svg { background: #fff; font: 11px "DejaVu Sans", "Helvetica", "Arial", sans-serif; }
text { fill: #222; }
.title { font-size: 17px; font-weight: bold; }
.sub { fill: #555; }
.grid { stroke: #ddd; stroke-width: 1; }
.boot { fill: #f6f6f6; stroke: #bbb; }
.boothead { font-weight: bold; }
rect.firmware { fill: #c9c9c9; stroke: #777; }
rect.start { fill: #e8d9a8; stroke: #94803c; }
rect.step { fill: #9cc3e6; stroke: #2f6496; }
rect.failed { fill: #f4b6b0; stroke: #b3160b; stroke-width: 2; }
rect.reboot { fill: #eee; stroke: #777; stroke-dasharray: 3 2; }
rect.unit { fill: #a9d6a0; stroke: #3d7a31; }
.try { stroke: #b3160b; stroke-width: 2; }
text.failure { fill: #b3160b; }
`

// SVG writes the timeline as a self-contained picture: no script, no font, no external style
// sheet.
func (t Timeline) SVG(w io.Writer) error {
	p := picture{scale: (svgWidth - 2*svgMargin) / math.Max(t.Seconds, 0.001)}
	p.draw(t)
	height := p.y + svgMargin
	_, err := fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" viewBox="0 0 %d %.0f" role="img">
<style>%s</style>
%s</svg>
`, svgWidth, height, svgWidth, height, svgStyle, p.out.Bytes())
	return err
}

// picture is an SVG that is drawn from top to bottom.
type picture struct {
	out   bytes.Buffer
	scale float64 // pixels per second
	y     float64 // top of the next line
}

func (p *picture) x(seconds float64) float64 { return svgMargin + seconds*p.scale }

// put writes markup. Untrusted text must be passed through svgText first.
func (p *picture) put(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

// svgText escapes text for XML, and what could control a terminal, whatever field of a journal it
// comes from. xml.EscapeText would make the program 100 KB larger.
func svgText(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(printable.Line(text))
}

func (p *picture) text(class string, x float64, text string) {
	p.put(`<text class="%s" x="%.1f" y="%.1f">%s</text>`, class, x, p.y+14, svgText(text))
}

func (p *picture) draw(t Timeline) {
	p.put("<title>%s</title>", svgText("pivot: "+t.Title()))
	p.head(t)
	top := p.y
	p.y += svgAxis
	// The grid is behind the boots, but their height is known only after they are drawn.
	boots := &picture{scale: p.scale, y: p.y}
	for _, boot := range t.Boots {
		boots.boot(boot)
	}
	p.grid(t.Seconds, top, boots.y)
	p.out.Write(boots.out.Bytes())
	p.y = boots.y
	p.foot(t)
}

func (p *picture) head(t Timeline) {
	p.y = 8
	p.put(`<text class="title" x="%d" y="%.1f">%s</text>`, svgMargin, p.y+16, svgText("pivot: "+t.Title()))
	p.y += 24
	sub := cmp.Or(t.Image, "the image stays")
	if !t.Started.IsZero() {
		sub += ", begun " + t.Started.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	p.text("sub", svgMargin, shortenedTo(sub, svgWidth-2*svgMargin))
	p.y = svgHeader - 22
	x := float64(svgMargin)
	for _, entry := range []struct {
		kind BarKind
		name string
	}{{BarFirmware, "before the kernel"}, {BarStart, "the boot"}, {BarStep, "a step of pivot"}, {BarFailed, "the step that failed"}, {BarReboot, "on the way to the next boot"}, {BarUnit, "a unit that waited"}} {
		p.put(`<rect class="%s" x="%.1f" y="%.1f" width="12" height="10"/>`, entry.kind, x, p.y+5)
		p.text("sub", x+17, entry.name)
		x += 35 + svgCharSize*float64(len(entry.name))
	}
	p.put(`<line class="try" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, x, p.y+4, x, p.y+16)
	p.text("sub", x+6, "a try that failed")
	p.y = svgHeader
}

// grid draws the time axis in seconds and its lines behind all boots.
func (p *picture) grid(seconds, top, bottom float64) {
	step := tick(seconds)
	p.y = top
	for i := 0; float64(i)*step <= seconds; i++ {
		at := float64(i) * step
		p.put(`<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, p.x(at), top+svgAxis-4, p.x(at), bottom)
		p.text("tick", p.x(at)+2, fmt.Sprintf("%g s", at))
	}
}

// tick returns a round distance of ticks in seconds, for about ten of them.
func tick(seconds float64) float64 {
	raw := math.Max(seconds, 0.001) / 10
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, factor := range []float64{1, 2, 5} {
		if raw <= factor*unit {
			return factor * unit
		}
	}
	return 10 * unit
}

// boot draws the box of one boot, with its bars.
func (p *picture) boot(b TimelineBoot) {
	bars := &picture{scale: p.scale, y: p.y + svgBootHead}
	end := b.Begin
	for _, bar := range b.Bars {
		bars.bar(bar)
		end = math.Max(end, bar.End)
	}
	height := bars.y + 6 - p.y
	p.put(`<g class="boots" data-id="%s">`, svgText(b.ID))
	p.put(`<rect class="boot" fill-opacity="0.6" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, p.x(b.Begin), p.y, math.Max(2, (end-b.Begin)*p.scale), height)
	head := fmt.Sprintf("boot %d", b.Number)
	if b.Soft {
		head += ", soft"
	}
	if b.ID != "" {
		head += fmt.Sprintf(" (%.8s)", b.ID) // data-id has the whole ID
	}
	p.text("boothead", p.labelled(p.x(b.Begin)+6, head), head)
	p.out.Write(bars.out.Bytes())
	p.put("</g>")
	p.y = bars.y + 12
}

// labelled returns where a text should start: at x, or further left if it would exceed the
// right margin.
func (p *picture) labelled(x float64, text string) float64 {
	return math.Max(svgMargin, math.Min(x, svgWidth-svgMargin-svgCharSize*float64(utf8.RuneCountInString(text))))
}

func (p *picture) bar(b Bar) {
	p.put(`<g class="bar %s" data-name="%s" data-begin="%.3f" data-end="%.3f">`, b.Kind, svgText(b.Name), b.Begin, b.End)
	p.put("<title>%s</title>", svgText(b.tooltip()))
	x, w := p.x(b.Begin), math.Max(2, (b.End-b.Begin)*p.scale)
	p.put(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d"/>`, b.Kind, x, p.y+2, w, svgRow-4)
	for _, try := range b.Tries {
		p.put(`<line class="try" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, p.x(try.At), p.y, p.x(try.At), p.y+svgRow)
	}
	label := b.label()
	switch room := svgCharSize * float64(utf8.RuneCountInString(label)); {
	case room+8 < w:
		p.text("label", x+4, label)
	case x+w+room+8 < svgWidth-svgMargin:
		p.text("label", x+w+5, label)
	default:
		p.text("label", math.Max(svgMargin, x-room-5), label)
	}
	p.y += svgRow
	for _, try := range b.Tries {
		p.failure(try)
	}
	p.put("</g>")
}

// failure draws a line with the error of a failed try, shortened to fit.
func (p *picture) failure(try TimelineTry) {
	text := fmt.Sprintf("\u00d7 at %.1f s: %s", try.At, try.Message)
	p.put(`<g class="failure" data-at="%.3f"><title>%s</title>`, try.At, svgText(try.Message))
	shown := shortenedTo(text, svgWidth-2*svgMargin)
	p.text("failure", p.labelled(p.x(try.At), shown), shown)
	p.put("</g>")
	p.y += svgRow - 2
}

// shortenedTo truncates text to the given width in pixels.
func shortenedTo(text string, pixels float64) string {
	runes := []rune(text)
	if fit := int(pixels / svgCharSize); len(runes) > fit {
		return string(runes[:fit-1]) + "…"
	}
	return text
}

// wrappedTo breaks text into lines of the given width in pixels, between words where it can.
func wrappedTo(text string, pixels float64) (lines []string) {
	fit := int(pixels / svgCharSize)
	runes := []rune(text)
	for len(runes) > fit {
		end := fit
		for end > fit/2 && runes[end] != ' ' {
			end--
		}
		if runes[end] != ' ' { // no space where one should be, as in a digest
			end = fit
		}
		lines = append(lines, string(runes[:end]))
		runes = []rune(strings.TrimLeft(string(runes[end:]), " "))
	}
	return append(lines, string(runes))
}

// label returns the text at a bar.
func (b Bar) label() string {
	text := b.Name
	if b.Kind == BarUnit {
		return fmt.Sprintf("%s started at %.1f s", text, b.Begin)
	}
	took := cmp.Or(b.Took, b.End-b.Begin)
	if took < 0.0995 {
		text += fmt.Sprintf(" %.0f ms", 1000*took)
	} else {
		text += fmt.Sprintf(" %.1f s", took)
	}
	if b.Bytes > 0 {
		text += ", " + printable.Size(b.Bytes)
	}
	switch {
	case b.Kind == BarFailed:
		text += ", failed"
	case b.Failed == 1:
		text += ", 1 failed try"
	case b.Failed > 1:
		text += fmt.Sprintf(", %d failed tries", b.Failed)
	}
	return text
}

func (b Bar) tooltip() string {
	return fmt.Sprintf("%s, from %.1f s to %.1f s", b.label(), b.Begin, b.End)
}

func (p *picture) foot(t Timeline) {
	p.y += 4
	if t.Failure != "" {
		for _, line := range wrappedTo("\u00d7 failed: "+t.Failure, svgWidth-2*svgMargin) {
			p.text("failure", svgMargin, line)
			p.y += svgRow - 4
		}
		p.y += 4
	}
	for _, note := range t.Notes {
		p.text("sub", svgMargin, "note: "+note)
		p.y += svgRow
	}
}
