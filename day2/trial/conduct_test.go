package trial_test

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"machine-pivot/day2/trial"
	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// begun returns the Conductor of a system with a trial that has begun in this boot.
func begun(t *testing.T) *trial.Conductor {
	t.Helper()
	h := hostdir.New(t)
	booted, err := h.Sysroot().Booted()
	if err != nil {
		t.Fatal(err)
	}
	id, err := h.Start()
	if err != nil {
		t.Fatal(err)
	}
	machine := *h.Host
	machine.Uptime = func() (time.Duration, error) { return time.Minute, nil }
	p := &pivot.Progress{Journal: pivot.JournalIn(h.Root), Now: time.Now, Emit: func(pivot.Event) {}, BootID: id}
	p.Content = pivot.JournalContent{Phase: pivot.PhaseTrial, BootID: id}
	tried := trial.Trial{Old: "the old one", New: booted.ID(), Seconds: 600, Confirm: trial.ConfirmAuto, Entered: true}
	if err := cmp.Or(tried.KeepIn(&p.Content), p.Journal.Save(p.Content)); err != nil {
		t.Fatal(err)
	}
	return &trial.Conductor{Host: &machine, Progress: p}
}

// TestConductLooksWithoutTheLock (P59): a look takes as long as the commands that it runs, and
// the system may be confirmed meanwhile. So Conduct looks without the lock, and each step with
// the lock starts from the current journal.
func TestConductLooksWithoutTheLock(t *testing.T) {
	for name, byHand := range map[string]bool{"by itself": false, "by somebody meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			c := begun(t)
			var done []string
			lacks := []string{"not yet what was asked for"}
			alone := func(p *pivot.Progress, step func() error) error {
				done = append(done, "lock")
				defer func() { done = append(done, "unlock") }()
				if err := p.Open(); err != nil {
					return err
				}
				return step()
			}
			c.Differences = func(context.Context) ([]string, error) {
				done = append(done, "look")
				return lacks, nil
			}
			wait := func(ctx context.Context) error {
				done = append(done, "wait")
				lacks = nil
				if !byHand {
					return nil
				}
				progress := *c.Progress // of another process
				other := trial.Conductor{Host: c.Host, Progress: &progress, Differences: c.Differences}
				return alone(&progress, func() error { return other.Confirm(ctx) })
			}
			if err := c.Conduct(t.Context(), func(step func() error) error { return alone(c.Progress, step) }, wait); err != nil {
				t.Fatal(err)
			}
			want := []string{"lock", "unlock", "look", "lock", "unlock", "wait", "look", "lock", "unlock"}
			if byHand {
				want = slices.Insert(want, 6, "lock", "look", "unlock")
			}
			if !slices.Equal(done, want) {
				t.Errorf("done %q, want %q", done, want)
			}
			if r, err := c.Progress.Journal.Load(); err != nil || r.Phase != pivot.PhaseDone || r.Held() {
				t.Errorf("the journal says %s, parts %v (%v)", r.Phase, r.Features, err)
			}
		})
	}
}

// TestConfirmSaysWhatItDoes: a confirmation looks at the system first, which may take minutes, and says so before.
func TestConfirmSaysWhatItDoes(t *testing.T) {
	c := begun(t)
	var said []string
	c.Progress.Emit = func(e pivot.Event) { said = append(said, e.Message) }
	c.Differences = func(context.Context) ([]string, error) {
		said = append(said, "look")
		return []string{"not yet what was asked for"}, nil
	}
	if err := c.Confirm(t.Context()); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("error %v", err)
	}
	if !slices.Equal(said, []string{"looking at the system on trial", "look"}) {
		t.Errorf("said %q", said)
	}
}

// TestSettleForgets: a deployment that failed its trial and is gone, or that runs, is not held for unproven any more: a
// later one may get its ID.
func TestSettleForgets(t *testing.T) {
	for name, unproven := range map[string]func(c *trial.Conductor) string{
		"gone": func(*trial.Conductor) string { return "os-0000.0" },
		"runs": func(c *trial.Conductor) string { return booted(t, c) },
	} {
		c := begun(t)
		id := unproven(c)
		c.Progress.Content = pivot.JournalContent{Phase: pivot.PhaseFailed, BootID: c.Progress.BootID}
		err := c.Progress.Content.SetPart("trial-deployments", map[string]string{"unproven": id}, pivot.Part{Avoids: []string{id}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.PrepareChange(t.Context()); err != nil || c.Progress.Content.Avoids(id) {
			t.Errorf("%s: %s is unproven, %v", name, id, err)
		}
	}
}

// booted returns the ID of the deployment that runs.
func booted(t *testing.T, c *trial.Conductor) string {
	t.Helper()
	d, err := c.Host.Sysroot().Booted()
	if err != nil {
		t.Fatal(err)
	}
	return d.ID()
}
