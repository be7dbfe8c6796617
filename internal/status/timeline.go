package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/pid1"
	"machine-pivot/internal/printable"
	"machine-pivot/pivot"
)

// BarKind is the kind of a bar.
type BarKind string

const (
	BarFirmware BarKind = "firmware" // before the kernel: firmware and boot loader
	BarStart    BarKind = "start"    // startup of the system: kernel, initramfs, system
	BarStep     BarKind = "step"     // a step of pivot
	BarFailed   BarKind = "failed"   // the step of pivot in which a run failed
	BarReboot   BarKind = "reboot"   // from the last step of a boot to the next boot
	BarUnit     BarKind = "unit"     // a unit that is not pivot's
)

// Bar is one row of the timeline. Begin and End are in seconds since the start of the timeline.
type Bar struct {
	Kind       BarKind
	Name       string
	Begin, End float64
	Took       float64 // its real duration in seconds, if the bar is shorter; 0 otherwise
	Bytes      int64   // bytes transferred; 0: none
	Failed     int     // number of failed tries; Tries has the last of them
	Tries      []TimelineTry
}

// TimelineTry is a failed try.
type TimelineTry struct {
	At      float64 // seconds since the start of the timeline
	Message string
}

// TimelineBoot is one start of the system in the timeline.
type TimelineBoot struct {
	Number int     // in the transaction, from 1
	Soft   bool    // it was started by a soft reboot
	ID     string  // as printable text
	Begin  float64 // start of its first known event
	Bars   []Bar   // in order of Begin

	start  pid1.StartID
	kernel float64 // when its kernel started
	ended  float64 // when its last step ended, in seconds after the kernel's start
	pauses []pause // since the kernel's start
}

// pause is a time of a boot without any event, in seconds after the kernel's start. It is drawn as
// shownWait seconds.
type pause struct{ from, to float64 }

// pausesOf returns the pauses of more than longWait seconds between the end of what came before and the first
// step, and between two steps.
func pausesOf(end float64, steps []pivot.Duration) (pauses []pause) {
	for _, step := range steps {
		if step.At > end+longWait {
			pauses = append(pauses, pause{end, step.At})
		}
		end = max(end, step.At+step.Seconds)
	}
	return pauses
}

// drawn converts seconds after the kernel's start to seconds on the axis after it.
func (b TimelineBoot) drawn(at float64) float64 {
	less := 0.0
	for _, p := range b.pauses {
		if at > p.from {
			less += max(0, min(at, p.to)-p.from-shownWait)
		}
	}
	return at - less
}

// Timeline is a transaction, from the start of its first boot to its end. All text is printable
// (see package printable), whatever the journal contains.
type Timeline struct {
	Phase   pivot.Phase
	Attempt int
	Image   string // "": no new image. For people
	Started time.Time
	Seconds float64 // total duration
	Boots   []TimelineBoot
	Failure string   // the error with which it ended, if any
	Notes   []string // where the picture deviates from what happened
}

// TimelineOf returns the timeline of a transaction in a journal: 0 is the current or last one, 1 the
// one before it, and so on. It returns an error if there is none.
func TimelineOf(r pivot.JournalContent, before int) (Timeline, error) {
	account := pivot.Account{Phase: r.Phase, Attempt: r.Attempt, Image: r.Target.Image, Started: r.Started, Error: r.Error, Phases: r.Phases, Boots: r.Boots}
	if before > 0 {
		earlier := r.History
		if n := len(earlier); n > 0 && earlier[n-1].Started.Equal(r.Started) {
			earlier = earlier[:n-1] // the current one, which has ended
		}
		if before > len(earlier) {
			return Timeline{}, fault.New(fault.Usage, "cannot plot the transaction %d before the last: the journal has %d before it", before, len(earlier))
		}
		account = earlier[len(earlier)-before]
	}
	if len(account.Phases) == 0 {
		return Timeline{}, fault.New(fault.Refused, "cannot plot: the journal has no step").
			WithHint("nothing was begun on this machine; another's journal is plotted with --journal FILE")
	}
	t := Timeline{Phase: account.Phase, Attempt: account.Attempt, Started: account.Started}
	if !account.Image.IsZero() {
		t.Image = printable.Line(account.Image.String())
	}
	if account.Error != nil {
		t.Failure = printable.Line(account.Error.Message)
	}
	t.addBoots(account)
	return t, nil
}

// addBoots places the boots one after the other.
func (t *Timeline) addBoots(account pivot.Account) {
	var clock bootClock
	for _, steps := range byBoot(account.Phases) {
		times := timesOf(account.Boots, steps[0].BootID)
		boot, doubt := t.begin(&clock, times, steps)
		if boot.Number > 1 {
			t.rebooted(boot, doubt)
		}
		early, late := splitEntered(steps)
		boot.Bars = append(boot.startup(times, steps[0]), t.steps(boot, early)...)
		if len(late) > 0 {
			boot.Bars = append(boot.Bars, boot.entered(timesOf(account.Boots, boot.start), late[0])...)
			boot.Bars = append(boot.Bars, t.steps(boot, late)...)
		}
		for _, bar := range boot.Bars {
			t.Seconds = max(t.Seconds, bar.End)
		}
		t.Boots = append(t.Boots, boot)
	}
}

// begin returns the boot of steps, placed on the axis, still without bars, and a note if its place is not
// accurate. A soft reboot keeps the kernel of the boot before, and with it the origin of all times.
func (t *Timeline) begin(clock *bootClock, times pivot.Boot, steps []pivot.Duration) (boot TimelineBoot, doubt string) {
	id, last := steps[0].BootID, steps[len(steps)-1]
	boot = TimelineBoot{Number: len(t.Boots) + 1, ID: printable.Line(string(id)), Soft: id.Soft(), start: last.BootID, ended: last.At + last.Seconds}
	var pauses []pause
	if n := len(t.Boots); boot.Soft && n > 0 && t.Boots[n-1].start.Boot() == id.Boot() {
		before := t.Boots[n-1]
		pauses = pausesOf(before.ended, steps)
		boot.kernel, boot.pauses = before.kernel, slices.Concat(before.pauses, pauses)
	} else {
		early := times.Firmware + times.Loader
		boot.kernel, doubt = clock.place(times.Kernel, t.Seconds+early)
		pauses = pausesOf(max(times.System, times.Initramfs), steps)
		boot.pauses, boot.Begin = pauses, boot.kernel-early
	}
	for _, p := range pauses {
		t.note(fmt.Sprintf("%s of a boot are not drawn to scale: nothing of pivot ran", time.Duration((p.to-p.from)*float64(time.Second)).Round(time.Second)))
		clock.at -= p.to - p.from - shownWait
	}
	if boot.Soft {
		boot.Begin = max(t.Seconds, boot.kernel+boot.drawn(steps[0].At))
	}
	return boot, doubt
}

// rebooted extends the last boot to the start of the next one.
func (t *Timeline) rebooted(next TimelineBoot, doubt string) {
	if doubt != "" {
		t.note(doubt)
	}
	name := "reboot"
	if next.Soft {
		name = "soft reboot"
	}
	if next.Begin > t.Seconds {
		last := &t.Boots[len(t.Boots)-1]
		last.Bars = append(last.Bars, Bar{Kind: BarReboot, Name: name, Begin: t.Seconds, End: next.Begin})
	}
}

// bootClock maps the machine's clock to the axis.
type bootClock struct {
	time time.Time // of a kernel's start; zero: unknown
	at   float64   // position of that time on the axis
}

// A wait of more than longWait seconds, such as one for a manual reboot, is drawn as shownWait
// seconds.
const (
	longWait  = 600
	shownWait = 30
)

// place returns the position of a kernel's start on the axis according to the clock, but not
// before earliest, and a note if that position is not accurate.
func (c *bootClock) place(started time.Time, earliest float64) (at float64, doubt string) {
	at = c.at + started.Sub(c.time).Seconds()
	switch {
	case started.IsZero() || c.time.IsZero() || at < earliest:
		at, doubt = earliest, "how long it took from one boot to the next is not known"
	case at > earliest+longWait:
		wait := time.Duration((at - earliest) * float64(time.Second)).Round(time.Second)
		at, doubt = earliest+shownWait, fmt.Sprintf("a reboot came after %s: that is not drawn to scale", wait)
	}
	c.time, c.at = started, at
	return at, doubt
}

// byBoot groups the steps by boot. A system that was entered from the initramfs is in the boot of the initramfs.
func byBoot(steps []pivot.Duration) (boots [][]pivot.Duration) {
	for i, step := range steps {
		if i == 0 || step.BootID != steps[i-1].BootID && !entersAfter(step.BootID, steps[i-1].BootID) {
			boots = append(boots, nil)
		}
		boots[len(boots)-1] = append(boots[len(boots)-1], step)
	}
	return boots
}

// entersAfter reports whether the system of a start was entered from the initramfs of another.
func entersAfter(id, before pid1.StartID) bool { return id.Entered() && id.Boot() == string(before) }

// splitEntered returns the steps of a boot until its initramfs has entered another system, and those after that.
func splitEntered(steps []pivot.Duration) (early, late []pivot.Duration) {
	for i := range steps {
		if i > 0 && entersAfter(steps[i].BootID, steps[i-1].BootID) {
			return steps[:i], steps[i:]
		}
	}
	return steps, nil
}

// entered returns the bar for the startup of a system that was entered from the initramfs, until pivot's first step in
// it.
func (b TimelineBoot) entered(times pivot.Boot, first pivot.Duration) []Bar {
	begin, end := b.kernel+b.drawn(times.System), b.kernel+b.drawn(first.At)
	if times.System == 0 || end <= begin {
		return nil
	}
	return []Bar{{Kind: BarStart, Name: "system", Begin: begin, End: end}}
}

func timesOf(boots []pivot.Boot, id pid1.StartID) pivot.Boot {
	if i := slices.IndexFunc(boots, func(b pivot.Boot) bool { return b.ID == id }); i >= 0 && id != "" {
		return boots[i]
	}
	return pivot.Boot{}
}

// startup returns the bars for the startup of a boot, until pivot's first step in it. None of them is known of a
// soft reboot.
func (b TimelineBoot) startup(times pivot.Boot, first pivot.Duration) (bars []Bar) {
	if times.ID == "" || b.Soft {
		return nil
	}
	add := func(kind BarKind, name string, begin, end float64) {
		if end > begin {
			bars = append(bars, Bar{Kind: kind, Name: name, Begin: begin, End: end})
		}
	}
	add(BarFirmware, "firmware", b.Begin, b.Begin+times.Firmware)
	add(BarFirmware, "boot loader", b.Begin+times.Firmware, b.kernel)
	kernel := b.kernel
	first.At = max(first.At, times.System, times.Initramfs)
	real := first.At
	first.At = b.drawn(first.At)
	end := func(stamps ...float64) float64 { return kernel + cmp.Or(append(stamps, first.At)...) }
	add(BarStart, "kernel", kernel, end(times.Initramfs, times.System))
	if times.Initramfs > 0 {
		add(BarStart, "initramfs", kernel+times.Initramfs, end(times.System))
	}
	if times.System > 0 {
		add(BarStart, "system", kernel+times.System, kernel+first.At)
	}
	if n := len(bars); n > 0 && first.At < real {
		bars[n-1].Took = bars[n-1].End - bars[n-1].Begin + real - first.At
	}
	return bars
}

// steps returns the bars for pivot's steps in a boot.
func (t *Timeline) steps(boot TimelineBoot, steps []pivot.Duration) (bars []Bar) {
	at := max(boot.kernel, boot.Begin)
	if n := len(boot.Bars); n > 0 {
		at = max(at, boot.Bars[n-1].End)
	}
	for _, step := range steps {
		if step.At > 0 {
			at = max(at, boot.kernel+boot.drawn(step.At))
		} else {
			t.note("when its steps began is not known: they are drawn end to end")
		}
		bar := Bar{Kind: BarStep, Name: printable.Line(step.Name), Begin: at, End: at + max(0, step.Seconds), Bytes: step.Bytes, Failed: step.Failed}
		for _, try := range step.Tries {
			moment := bar.End
			if try.At > 0 {
				moment = min(max(boot.kernel+boot.drawn(try.At), bar.Begin), bar.End)
			}
			bar.Tries = append(bar.Tries, TimelineTry{At: moment, Message: printable.Line(try.Message)})
			if try.Last {
				bar.Kind = BarFailed
			}
		}
		bars = append(bars, bar)
		at = bar.End
	}
	return bars
}

// AddUnits adds units that started in the timeline's last boot, if it is the given start. started
// has the start times by unit name, in seconds after the kernel's start.
func (t *Timeline) AddUnits(last pid1.StartID, started map[string]float64) {
	n := len(t.Boots)
	if n == 0 || last == "" || t.Boots[n-1].start != last {
		return
	}
	boot := &t.Boots[n-1]
	for _, name := range slices.Sorted(maps.Keys(started)) {
		at := boot.kernel + boot.drawn(started[name])
		boot.Bars = append(boot.Bars, Bar{Kind: BarUnit, Name: name, Begin: at, End: at})
		t.Seconds = max(t.Seconds, at)
	}
}

// note adds a note unless it is already there.
func (t *Timeline) note(text string) {
	if !slices.Contains(t.Notes, text) {
		t.Notes = append(t.Notes, text)
	}
}

// Title returns a one-line summary of the timeline.
func (t Timeline) Title() string {
	parts := []string{string(t.Phase)}
	if t.Attempt > 1 {
		parts = append(parts, fmt.Sprintf("in attempt %d", t.Attempt))
	}
	if n := len(t.Boots); n > 1 {
		parts = append(parts, fmt.Sprintf("over %d boots", n))
	}
	return strings.Join(append(parts, fmt.Sprintf("%.1f s", t.Seconds)), ", ")
}
