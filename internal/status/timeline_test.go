package status

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/pivot"
)

// journalOfTwoBoots returns a first boot over two boots, with a registry that comes up late.
func journalOfTwoBoots() pivot.JournalContent {
	kernel := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	return pivot.JournalContent{
		Phase: pivot.PhaseDone, Attempt: 1, Started: kernel.Add(40 * time.Second),
		Target: pivot.Target{Image: pivot.ImageOf(imageref.FromOrigin("r.example/os@sha256:aa"))},
		Boots: []pivot.Boot{
			{ID: "one", Kernel: kernel, Firmware: 20, Loader: 3, Initramfs: 2, System: 30},
			{ID: "two", Kernel: kernel.Add(200 * time.Second), Initramfs: 1, System: 12},
		},
		Phases: []pivot.Duration{
			{Name: "read", Seconds: 0.5, BootID: "one", At: 40},
			{Name: "pull", Seconds: 60, BootID: "one", At: 41, Bytes: 850e6, Failed: 2, Tries: []pivot.Try{
				{At: 42, Message: "cannot reach r.example: connection refused"}, {At: 45, Message: "cannot reach <r.example> & co."},
			}},
			{Name: "commit", Seconds: 4, BootID: "one", At: 101},
			{Name: "prove", Seconds: 0.25, BootID: "two", At: 20},
		},
	}
}

// TestTimeline (P74): a transaction can be shown as a timeline: its boots, steps, bytes and failures, also from another machine's journal.
func TestTimeline(t *testing.T) {
	timeline, err := TimelineOf(journalOfTwoBoots(), 0)
	if err != nil {
		t.Fatal(err)
	}
	timeline.AddUnits("one", map[string]float64{"kubelet.service": 1})
	timeline.AddUnits("two", map[string]float64{"kubelet.service": 25})
	var got []string
	for _, boot := range timeline.Boots {
		for _, b := range boot.Bars {
			got = append(got, fmt.Sprintf("%d %s %s %.1f-%.1f", boot.Number, b.Kind, b.Name, b.Begin, b.End))
		}
	}
	want := []string{
		"1 firmware firmware 0.0-20.0",
		"1 firmware boot loader 20.0-23.0",
		"1 start kernel 23.0-25.0",
		"1 start initramfs 25.0-53.0",
		"1 start system 53.0-63.0",
		"1 step read 63.0-63.5",
		"1 step pull 64.0-124.0",
		"1 step commit 124.0-128.0",
		"1 reboot reboot 128.0-223.0",
		"2 start kernel 223.0-224.0",
		"2 start initramfs 224.0-235.0",
		"2 start system 235.0-243.0",
		"2 step prove 243.0-243.2",
		"2 unit kubelet.service 248.0-248.0",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("the bars are\n%s\nwant\n%s", g, w)
	}
	if timeline.Seconds != 248 || len(timeline.Notes) != 0 {
		t.Errorf("it has %v s and the notes %q", timeline.Seconds, timeline.Notes)
	}
	if tries := timeline.Boots[0].Bars[6].Tries; len(tries) != 2 || tries[0].At != 65 || tries[1].At != 68 {
		t.Errorf("the tries are %+v", tries)
	}
}

// TestTimelineEntered: a system that was entered from the initramfs is in the boot of that.
func TestTimelineEntered(t *testing.T) {
	r := journalOfTwoBoots()
	r.Boots = r.Boots[:1]
	r.Boots[0].System = 0
	r.Boots = append(r.Boots, pivot.Boot{ID: "one+entered", Kernel: r.Boots[0].Kernel, Initramfs: r.Boots[0].Initramfs, System: 140})
	r.Phases = slices.DeleteFunc(r.Phases, func(d pivot.Duration) bool { return d.BootID != "one" })
	last := r.Phases[len(r.Phases)-1]
	r.Phases = append(r.Phases, pivot.Duration{Name: "prove", Seconds: 1, BootID: "one+entered", At: 145})
	timeline, err := TimelineOf(r, 0)
	if err != nil {
		t.Fatal(err)
	}
	timeline.AddUnits("one+entered", map[string]float64{"kubelet.service": 150})
	if len(timeline.Boots) != 1 || len(timeline.Notes) > 0 {
		t.Fatalf("%d boots, notes %q", len(timeline.Boots), timeline.Notes)
	}
	boot := timeline.Boots[0]
	var got []string
	for _, b := range boot.Bars[len(boot.Bars)-4:] {
		got = append(got, fmt.Sprintf("%s %s %.1f-%.1f", b.Kind, b.Name, b.Begin-boot.kernel, b.End-boot.kernel))
	}
	want := []string{
		fmt.Sprintf("step %s %.1f-%.1f", last.Name, last.At, last.At+last.Seconds),
		"start system 140.0-145.0", "step prove 145.0-146.0", "unit kubelet.service 150.0-150.0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the last bars are %q, want %q", got, want)
	}
}

// TestTimelineSoftReboot: a start by a soft reboot has the times of the kernel that it keeps, also after days.
func TestTimelineSoftReboot(t *testing.T) {
	const day = 24 * 3600
	for _, waited := range []float64{0, 3 * day} {
		r := journalOfTwoBoots()
		r.Boots = append(r.Boots, pivot.Boot{ID: "two+1", Kernel: r.Boots[1].Kernel})
		r.Phases = append(r.Phases,
			pivot.Duration{Name: "commit", Seconds: 2, BootID: "two", At: 30 + waited},
			pivot.Duration{Name: "prove", Seconds: 1, BootID: "two+1", At: 42 + 2*waited})
		timeline, err := TimelineOf(r, 0)
		if err != nil {
			t.Fatal(err)
		}
		timeline.AddUnits("two+1", map[string]float64{"kubelet.service": 45 + 2*waited})
		var got []string
		for _, boot := range timeline.Boots[1:] {
			for _, b := range boot.Bars {
				got = append(got, fmt.Sprintf("%d %v %s %.1f-%.1f", boot.Number, boot.Soft, b.Name, b.Begin-timeline.Boots[1].kernel, b.End-timeline.Boots[1].kernel))
			}
		}
		want := []string{"2 false kernel 0.0-1.0", "2 false initramfs 1.0-12.0", "2 false system 12.0-20.0", "2 false prove 20.0-20.2"}
		if waited == 0 {
			want = append(want, "2 false commit 30.0-32.0", "2 false soft reboot 32.0-42.0", "3 true prove 42.0-43.0", "3 true kubelet.service 45.0-45.0")
		} else { // each wait is drawn as 30 s
			want = append(want, "2 false commit 50.2-52.2", "2 false soft reboot 52.2-82.2", "3 true prove 82.2-83.2", "3 true kubelet.service 85.2-85.2")
		}
		if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
			t.Errorf("the bars are\n%s\nwant\n%s", g, w)
		}
	}
}

// TestTimelineLongUptime: a boot that is up for days before pivot begins, and between two runs, does
// not squeeze the steps. Real durations are named, and the next boot follows at its distance.
func TestTimelineLongUptime(t *testing.T) {
	const day = 24 * 3600
	r := journalOfTwoBoots()
	for i := range r.Phases[:3] {
		r.Phases[i].At += 5 * day
		for j := range r.Phases[i].Tries {
			r.Phases[i].Tries[j].At += 5 * day
		}
	}
	r.Phases[2].At += day // the commit came with another run
	r.Boots[1].Kernel = r.Boots[1].Kernel.Add(6 * day * time.Second)
	timeline, err := TimelineOf(r, 0)
	if err != nil {
		t.Fatal(err)
	}
	timeline.AddUnits("two", map[string]float64{"kubelet.service": 25})
	var got []string
	for _, boot := range timeline.Boots {
		for _, b := range boot.Bars {
			got = append(got, fmt.Sprintf("%d %s %.1f-%.1f", boot.Number, b.label(), b.Begin, b.End))
		}
	}
	want := []string{
		"1 firmware 20.0 s 0.0-20.0", "1 boot loader 3.0 s 20.0-23.0", "1 kernel 2.0 s 23.0-25.0", "1 initramfs 28.0 s 25.0-53.0",
		"1 system 432010.0 s 53.0-83.0", "1 read 0.5 s 83.0-83.5", "1 pull 60.0 s, 850 MB, 2 failed tries 84.0-144.0", "1 commit 4.0 s 174.0-178.0",
		"1 reboot 95.0 s 178.0-273.0",
		"2 kernel 1.0 s 273.0-274.0", "2 initramfs 11.0 s 274.0-285.0", "2 system 8.0 s 285.0-293.0", "2 prove 0.2 s 293.0-293.2", "2 kubelet.service started at 298.0 s 298.0-298.0",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("the bars are\n%s\nwant\n%s", g, w)
	}
	if tries := timeline.Boots[0].Bars[6].Tries; tries[0].At != 85 || tries[1].At != 88 {
		t.Errorf("the tries are %+v", tries)
	}
	if notes := strings.Join(timeline.Notes, "; "); !strings.Contains(notes, "120h0m10s of a boot are not drawn to scale") || !strings.Contains(notes, "24h0m0s") || len(timeline.Notes) != 2 {
		t.Errorf("notes %q", notes)
	}
}

// TestTimelineCauseInFull: the cause of a failure is there to its last word, whatever its length.
func TestTimelineCauseInFull(t *testing.T) {
	for _, cause := range []string{"short", strings.Repeat("no route to r.example ", 40) + "end", strings.Repeat("f", 1000), strings.Repeat("é", 163) + " " + strings.Repeat("ü", 164)} {
		r := journalOfTwoBoots()
		r.Error = &pivot.Failure{Message: cause}
		timeline, err := TimelineOf(r, 0)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := timeline.SVG(&out); err != nil {
			t.Fatal(err)
		}
		shown := ""
		for _, line := range wrappedTo(cause, svgWidth-2*svgMargin) {
			if float64(len([]rune(line)))*svgCharSize > svgWidth-2*svgMargin {
				t.Errorf("the line %q is too long", line)
			}
			shown += strings.ReplaceAll(line, " ", "")
		}
		if shown != strings.ReplaceAll(cause, " ", "") || strings.Contains(out.String(), "…") {
			t.Errorf("%q is shown as %q", cause, shown)
		}
	}
}

// TestTimelineClocks: unknown times give a note, and nothing is drawn before its predecessor.
func TestTimelineClocks(t *testing.T) {
	back := journalOfTwoBoots()
	back.Boots[1].Kernel = back.Boots[0].Kernel.Add(-time.Hour) // the clock was set
	late := journalOfTwoBoots()
	late.Boots[1].Kernel = late.Boots[0].Kernel.Add(26 * time.Hour)
	old := journalOfTwoBoots()
	old.Boots = nil
	for i := range old.Phases {
		old.Phases[i].At, old.Phases[i].Tries = 0, nil
	}
	for _, c := range []struct {
		name    string
		journal pivot.JournalContent
		notes   int
	}{{"a clock that was set back", back, 1}, {"an older program's journal", old, 2}, {"a reboot on the next day", late, 1}, {"all is known", journalOfTwoBoots(), 0}} {
		timeline, err := TimelineOf(c.journal, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := 0.0
		for _, boot := range timeline.Boots {
			for _, b := range boot.Bars {
				if b.Begin < at || b.End < b.Begin || b.End > timeline.Seconds {
					t.Errorf("%s: bar %+v, after %v, of %v s", c.name, b, at, timeline.Seconds)
				}
				at = b.Begin
			}
		}
		if timeline.Seconds > 1000 {
			t.Errorf("%s: the picture has %v s", c.name, timeline.Seconds)
		}
		if len(timeline.Notes) != c.notes {
			t.Errorf("%s: the notes are %q", c.name, timeline.Notes)
		}
	}
}

// TestTimelineBefore: earlier transactions can be plotted; one that does not exist is an error.
func TestTimelineBefore(t *testing.T) {
	r := journalOfTwoBoots()
	account := func(name string, at time.Time) pivot.Account {
		return pivot.Account{Phase: pivot.PhaseFailed, Started: at, Phases: []pivot.Duration{{Name: name, Seconds: 1}}}
	}
	r.History = []pivot.Account{account("first", r.Started.Add(-2*time.Hour)), account("second", r.Started.Add(-time.Hour)), account("this one", r.Started)}
	for before, want := range map[int]string{0: "read", 1: "second", 2: "first"} {
		timeline, err := TimelineOf(r, before)
		if err != nil || len(timeline.Boots) == 0 {
			t.Fatalf("before %d: %+v, %v", before, timeline, err)
		}
		bars := timeline.Boots[0].Bars
		if !slices.ContainsFunc(bars, func(b Bar) bool { return b.Name == want }) {
			t.Errorf("before %d: the bars are %+v, without %s", before, bars, want)
		}
	}
	if _, err := TimelineOf(r, 3); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), "the journal has 2 before it") {
		t.Errorf("before 3: %v", err)
	}
	if _, err := TimelineOf(pivot.JournalContent{Phase: pivot.PhaseIdle}, 0); fault.KindOf(err) != fault.Refused || fault.HintOf(err) == "" {
		t.Errorf("nothing begun: %v", err)
	}
}

// element is an element of the picture with its children.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
	Text     string     `xml:",chardata"`
}

func (e element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (e element) number(t *testing.T, name string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(e.attr(name), 64)
	if err != nil {
		t.Errorf("<%s> has the %s %q", e.XMLName.Local, name, e.attr(name))
	}
	return n
}

// all returns e and the elements below it for which holds is true.
func (e element) all(holds func(element) bool) (found []element) {
	if holds(e) {
		found = append(found, e)
	}
	for _, child := range e.Children {
		found = append(found, child.all(holds)...)
	}
	return found
}

func named(name string) func(element) bool {
	return func(e element) bool { return e.XMLName.Local == name }
}

func classed(class string) func(element) bool {
	return func(e element) bool { return strings.HasPrefix(e.attr("class")+" ", class+" ") }
}

func drawn(t *testing.T, timeline Timeline) element {
	t.Helper()
	var b bytes.Buffer
	if err := timeline.SVG(&b); err != nil {
		t.Fatal(err)
	}
	var svg element
	decoder := xml.NewDecoder(&b)
	decoder.Strict = true
	if err := decoder.Decode(&svg); err != nil {
		t.Fatalf("the picture is not XML: %v", err)
	}
	return svg
}

// TestTimelineSVG: each bar is in the picture, at the place and with the length that its times give,
// and the picture is self-contained.
func TestTimelineSVG(t *testing.T) {
	timeline, err := TimelineOf(journalOfTwoBoots(), 0)
	if err != nil {
		t.Fatal(err)
	}
	svg := drawn(t, timeline)
	if svg.XMLName.Space != "http://www.w3.org/2000/svg" || svg.XMLName.Local != "svg" {
		t.Errorf("the picture is <%v>", svg.XMLName)
	}
	groups := svg.all(classed("bar"))
	var bars []Bar
	for _, boot := range timeline.Boots {
		bars = append(bars, boot.Bars...)
	}
	if len(groups) != len(bars) {
		t.Fatalf("%d bars are drawn, want %d", len(groups), len(bars))
	}
	scale := (svgWidth - 2*svgMargin) / timeline.Seconds
	y := 0.0
	for i, g := range groups {
		rect := g.all(named("rect"))[0]
		wantX, wantWidth := svgMargin+bars[i].Begin*scale, math.Max(2, (bars[i].End-bars[i].Begin)*scale)
		if g.attr("data-name") != bars[i].Name || math.Abs(rect.number(t, "x")-wantX) > 0.1 || math.Abs(rect.number(t, "width")-wantWidth) > 0.1 {
			t.Errorf("bar %s is at %s, %s wide, want %.1f and %.1f", g.attr("data-name"), rect.attr("x"), rect.attr("width"), wantX, wantWidth)
		}
		if rect.attr("class") != string(bars[i].Kind) {
			t.Errorf("bar %s is %q, want %q", bars[i].Name, rect.attr("class"), bars[i].Kind)
		}
		if at := rect.number(t, "y"); at <= y {
			t.Errorf("bar %s is at %v, not below %v", bars[i].Name, at, y)
		} else {
			y = at
		}
	}
	if pull := groups[6].all(named("text"))[0].Text; pull != "pull 60.0 s, 850 MB, 2 failed tries" {
		t.Errorf("the pull says %q", pull)
	}
	failures := svg.all(classed("failure"))
	if n := len(svg.all(func(e element) bool { return e.attr("data-at") != "" })); n != 2 || len(failures) != 4 || failures[2].all(named("title"))[0].Text != "cannot reach <r.example> & co." {
		t.Errorf("%d failures are drawn: %+v", n, failures)
	}
	boots := svg.all(classed("boots"))
	if len(boots) != 2 || boots[0].attr("data-id") != "one" || boots[1].attr("data-id") != "two" {
		t.Errorf("the boots are %+v", boots)
	}
	inside(t, svg)
	for _, name := range []string{"script", "image", "use", "a", "foreignObject", "link"} {
		if len(svg.all(named(name))) > 0 {
			t.Errorf("it has a <%s>", name)
		}
	}
	style := svg.all(named("style"))[0].Text
	for _, far := range []string{"url(", "@import", "http"} {
		if strings.Contains(style, far) {
			t.Errorf("its style has %q", far)
		}
	}
}

// inside checks that everything is drawn within the picture, as far as text can be measured
// here.
func inside(t *testing.T, svg element) {
	t.Helper()
	w, h := svg.number(t, "width"), svg.number(t, "height")
	for _, e := range svg.all(named("rect")) {
		if x, y := e.number(t, "x"), e.number(t, "y"); x < 0 || y < 0 || x+e.number(t, "width") > w || y+e.number(t, "height") > h {
			t.Errorf("outside of %v x %v: %+v", w, h, e.Attrs)
		}
	}
	for _, e := range svg.all(named("text")) {
		room := svgCharSize * float64(len([]rune(e.Text)))
		if strings.HasPrefix(e.attr("class"), "title") {
			room *= 17.0 / 11
		}
		if x, y := e.number(t, "x"), e.number(t, "y"); x < 0 || y > h || x+room > w {
			t.Errorf("%q at %v, %v leaves the picture, which is %v x %v", e.Text, x, y, w, h)
		}
	}
}

// TestTimelineFailed: an error that ended the run is drawn, whatever its length and content.
func TestTimelineFailed(t *testing.T) {
	r := journalOfTwoBoots()
	r.Phase, r.Phases, r.Boots = pivot.PhaseFailed, r.Phases[:2], r.Boots[:1]
	message := "cannot pull: \x1b[31m" + strings.Repeat("\u202every long ", 100) + "</svg>"
	r.Error = &pivot.Failure{Message: message}
	r.Boots[0].ID, r.Phases[0].BootID, r.Phases[1].BootID = "\x00\xff", "\x00\xff", "\x00\xff"
	r.Phases[1].Tries = append(r.Phases[1].Tries, pivot.Try{At: 101, Message: message, Last: true})
	timeline, err := TimelineOf(r, 0)
	if err != nil {
		t.Fatal(err)
	}
	svg := drawn(t, timeline)
	inside(t, svg)
	failed := svg.all(classed("bar failed"))
	if len(failed) != 1 || failed[0].attr("data-name") != "pull" {
		t.Errorf("the failed steps are %+v", failed)
	}
	texts := svg.all(func(e element) bool {
		return e.XMLName.Local == "text" && strings.Contains(e.Text, "× failed: cannot pull")
	})
	if len(texts) != 1 || strings.ContainsAny(texts[0].Text, "\x1b\u202e") {
		t.Errorf("the failure is told as %+v", texts)
	}
}

func TestTimelineTick(t *testing.T) {
	for seconds, want := range map[float64]float64{0: 0.0001, 9: 1, 10: 1, 11: 2, 95: 10, 248: 50, 3000: 500} {
		if got := tick(seconds); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v s have a line each %v s, want %v", seconds, got, want)
		}
	}
}
