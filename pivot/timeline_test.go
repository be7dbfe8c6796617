package pivot

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pid1"
	"machine-pivot/internal/retry"
)

// TestTimeline: the journal records when each step began, in which boot, what it transferred,
// and which tries failed, over two boots.
func TestTimeline(t *testing.T) {
	journal := Journal{Path: filepath.Join(t.TempDir(), "journal.json"), Disk: hostfiles.OS{}}
	clock := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	boot := func(id pid1.StartID, firmware float64) *Progress {
		p := &Progress{FirstBoot: true, Journal: journal, Emit: func(Event) {}, Now: func() time.Time { return clock }, BootID: id,
			Boot: Boot{ID: id, Kernel: clock, Firmware: firmware, System: 2}}
		if err := p.Open(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	pass := func(d time.Duration) { clock = clock.Add(d) }

	first := boot("one", 3)
	pass(10 * time.Second)
	first.Begin(StepRead, "")
	pass(500 * time.Millisecond)
	first.Begin(StepPull, "")
	first.Start(1, "one", Target{})
	for i := range maxTries + 2 {
		pass(time.Second)
		first.Waiting(fmt.Errorf("try %d", i), retry.Pause{Try: i, Wait: time.Second})
	}
	first.Moved(Amount{Done: 1e6, Total: 5e6})
	first.Moved(Amount{Done: 5e6, Total: 5e6})
	first.Begin(StepCommit, "")
	pass(250 * time.Millisecond)
	if err := first.Enter(PhaseCommitted, "one"); err != nil {
		t.Fatal(err)
	}
	if err := first.Keep(); err != nil {
		t.Fatal(err)
	}

	pass(time.Minute)
	kernel := clock
	second := boot("two", 0)
	pass(20 * time.Second)
	second.Begin(StepProve, "")
	pass(time.Second)
	second.Fail(errors.New("it is not"))
	if err := second.Enter(PhaseFailed, "two"); err != nil {
		t.Fatal(err)
	}

	r, err := journal.Load()
	if err != nil {
		t.Fatal(err)
	}
	var tries []Try
	for i := 2; i < maxTries+2; i++ {
		tries = append(tries, Try{At: 11.5 + float64(i), Message: fmt.Sprintf("try %d", i)})
	}
	want := []Duration{
		{Name: "read", Seconds: 0.5, BootID: "one", At: 10},
		{Name: "pull", Seconds: 7, BootID: "one", At: 10.5, Bytes: 5e6, Failed: maxTries + 2, Tries: tries},
		{Name: "commit", Seconds: 0.25, BootID: "one", At: 17.5},
		{Name: "prove", Seconds: 1, BootID: "two", At: 20, Failed: 1, Tries: []Try{{At: 21, Message: "it is not", Last: true}}},
	}
	if !reflect.DeepEqual(r.Phases, want) {
		t.Errorf("the steps are\n%+v, want\n%+v", r.Phases, want)
	}
	boots := []Boot{{ID: "one", Kernel: clock.Add(-20*time.Second - time.Second - time.Minute - 17*time.Second - 750*time.Millisecond), Firmware: 3, System: 2}, {ID: "two", Kernel: kernel, System: 2}}
	if !reflect.DeepEqual(r.Boots, boots) {
		t.Errorf("the boots are\n%+v, want\n%+v", r.Boots, boots)
	}
	if len(r.History) != 1 || !reflect.DeepEqual(r.History[0].Boots, boots) {
		t.Errorf("the history does not have them: %+v", r.History)
	}
}

// TestBootsAreBounded: the record keeps the last boots. A boot with several runs is there once,
// as the last run saw it.
func TestBootsAreBounded(t *testing.T) {
	p := &Progress{Now: time.Now, Emit: func(Event) {}}
	for i := range maxBoots + 3 {
		for _, system := range []float64{0, 5} {
			p.Boot = Boot{ID: pid1.StartID(fmt.Sprint(i)), System: system}
			p.Begin(StepRead, "")
			p.endStep()
		}
	}
	var ids []string
	for _, b := range p.Content.Boots {
		ids = append(ids, string(b.ID))
		if b.System != 5 {
			t.Errorf("boot %s is as the first run saw it", b.ID)
		}
	}
	if got, want := strings.Join(ids, " "), "3 4 5 6 7 8"; got != want {
		t.Errorf("the boots are %s, want %s", got, want)
	}
}
