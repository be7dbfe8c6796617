package stories_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
)

// journalOf returns the machine's journal as it is on the disk.
func journalOf(t *testing.T, h *hostdir.Host) []byte {
	t.Helper()
	data, err := os.ReadFile(pivot.JournalIn(h.Root).Path)
	must(t, err)
	return data
}

// text returns a record as text.
func text(t *testing.T, r pivot.JournalContent) string {
	t.Helper()
	data, err := json.Marshal(r)
	must(t, err)
	return string(data)
}

// TestRollbackThatIsImpossible: a machine that is done stays done, for its journal, its status
// and its verification, if no tool of it can roll back. Its previous system is not touched either.
func TestRollbackThatIsImpossible(t *testing.T) {
	h := arrived(t)
	previous := filepath.Join(h.Physical(), "ostree/deploy/os/deploy")
	open := func() []string {
		found, err := filepath.Glob(filepath.Join(previous, "*", firstboot.EncapsulatedPath))
		must(t, err)
		return found
	}
	before, files := journalOf(t, h), open()
	r := day2.Rollback{Machine: newMachine(t, h)}
	if err := r.Run(t.Context()); fault.KindOf(err) != fault.Refused || fault.HintOf(err) == "" {
		t.Errorf("error %v", err)
	}
	if now := journalOf(t, h); !bytes.Equal(now, before) {
		t.Errorf("the journal was\n%s\nand is\n%s", before, now)
	}
	if now := open(); len(files) == 0 || len(now) != len(files) {
		t.Errorf("first boots that are open: %q, were %q", now, files)
	}
	if r.Progress.Content.Phase != pivot.PhaseDone {
		t.Errorf("the run's last phase is %s", r.Progress.Content.Phase)
	}
	expectStatus(t, h)
}

// TestFailureChangesNothing: whichever call of another program fails, before or after its effect, the machine is as
// done as it was, as long as the next boot is the former one. The same command succeeds afterwards, and leaves nothing
// of the failed one.
func TestFailureChangesNothing(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, h *hostdir.Host) (*pivot.Progress, error){
		"rebase": func(t *testing.T, h *hostdir.Host) (*pivot.Progress, error) {
			r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"more=1"}}
			_, err := r.Run(t.Context(), day2.RunOptions{})
			return r.Progress, err
		},
		"rebase to an image": func(t *testing.T, h *hostdir.Host) (*pivot.Progress, error) {
			r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
			_, err := r.Run(t.Context(), day2.RunOptions{})
			return r.Progress, err
		},
		"apply": func(t *testing.T, h *hostdir.Host) (*pivot.Progress, error) {
			a := day2.Apply{Machine: newMachine(t, h), Config: day2.Config{File: "mc.yaml", Data: []byte("metadata: {name: a}\nspec: {kernelArguments: [more=1]}\n")}, When: day2.RebootLater}
			_, err := a.Run(t.Context(), day2.RunOptions{})
			return a.Progress, err
		},
		"rollback": func(t *testing.T, h *hostdir.Host) (*pivot.Progress, error) {
			r := day2.Rollback{Machine: newMachine(t, h)}
			return r.Progress, r.Run(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 5)
			h := arrived(t)
			h.Ostree.Version = "2023.6"
			h.ExtendNext("/usr/share/more")
			h.Serve(h.NativeImage())
			for point := 0; ; point++ {
				before := newMachine(t, h)
				must(t, before.Progress.Open())
				start := len(h.Ostree.Calls)
				hit := false
				h.Ostree.Fail = func(call int, after bool) error {
					if 2*(call-start-1) == point && !after || 2*(call-start-1)+1 == point && after {
						hit = true
						return errors.New("no power to do that")
					}
					return nil
				}
				p, err := run(t, h)
				h.Ostree.Fail = nil
				if !hit {
					must(t, err)
					if point < 2 || p.Content.Phase != pivot.PhaseCommitted || downloadOf(t, p.Content) != nil {
						t.Errorf("after %d failures: %+v", point, p.Content)
					}
					return
				}
				m := newMachine(t, h)
				state, oerr := m.Host.Observe(t.Context(), pivot.Target{})
				must(t, oerr)
				if state.Pending() { // the call failed after it had made the commit, or came after it: the boot entries count
					if err != nil || p.Content.Phase != pivot.PhaseCommitted {
						t.Errorf("point %d: %v, and the next boot is another", point, err)
					}
					return
				}
				if err == nil {
					t.Fatalf("point %d: the failure is not noticed", point)
				}
				must(t, m.Progress.Open())
				was, is := before.Progress.Content, m.Progress.Content
				was.Features, is.Features = nil, nil
				if w, n := text(t, was), text(t, is); w != n || p.Content.Phase != pivot.PhaseDone {
					t.Errorf("point %d, %v: the record was\n%s\nand is\n%s", point, err, w, n)
				}
				expectStatus(t, h)
			}
		})
	}
}

// TestFailedCommandAfterAnother: a command that fails leaves a commit that waits for its
// reboot, and a first boot that was reopened for nothing is closed again.
func TestFailedCommandAfterAnother(t *testing.T) {
	h := arrived(t)
	r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"more=1"}}
	if _, err := r.Run(t.Context(), day2.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	before := journalOf(t, h)
	h.Ostree.Fail = func(int, bool) error { return errors.New("no power to do that") }
	r = day2.Rebase{Machine: newMachine(t, h), Append: []string{"other=1"}}
	if _, err := r.Run(t.Context(), day2.RunOptions{}); err == nil {
		t.Fatal("the failure is not noticed")
	}
	h.Ostree.Fail = nil
	if now := journalOf(t, h); !bytes.Equal(now, before) {
		t.Errorf("the journal was\n%s\nand is\n%s", before, now)
	}
	expectStatusAt(t, h, pivot.PhaseCommitted)
	h.Boot()
	expectStatus(t, h)
	if !strings.Contains(h.Options(), "more=1") {
		t.Errorf("booted with %s", h.Options())
	}

	h.Write(firstboot.EncapsulatedPath+".bak", []byte("{"))
	before = journalOf(t, h)
	b := firstboot.FirstBoot{Machine: newMachine(t, h), File: firstboot.EncapsulatedPath, Again: true}
	if err := b.Run(t.Context()); fault.KindOf(err) != fault.BadInput {
		t.Errorf("error %v", err)
	}
	if now := journalOf(t, h); !bytes.Equal(now, before) {
		t.Errorf("the journal was\n%s\nand is\n%s", before, now)
	}
	if _, err := os.Lstat(h.Path(firstboot.EncapsulatedPath)); !os.IsNotExist(err) {
		t.Errorf("the first boot is open: %v", err)
	}
}
