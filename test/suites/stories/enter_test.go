package stories_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	entering "machine-pivot/internal/enter"
	"machine-pivot/internal/host"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/pinning"
	starts "machine-pivot/internal/start"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// entersHere is an initramfs in which a committed deployment can be entered, unless it is made to fail.
type entersHere struct {
	place
	unread, refused error
	requested       string // the ID of the deployment
}

func (e *entersHere) Running(context.Context) (entering.Running, error) {
	return entering.Running{}, e.unread
}

func (e *entersHere) RequestEnter(_ entering.Running, deployment string) error {
	e.requested = deployment
	return e.refused
}

// enterEarly runs the first boot in the initramfs once.
func enterEarly(t *testing.T, h *hostdir.Host, e *entersHere) (notes string, outcome machine.Outcome, err error) {
	t.Helper()
	e.Initramfs = initramfs.New(h.Root)
	return runEarly(t, h, e)
}

// wantsToEnter sets the reboot method of a host.
func wantsToEnter(h *hostdir.Host) { h.Write(host.SettingsPath, []byte("reboot-method=enter\n")) }

// enterNext starts the default deployment in the running boot, as pivot-enter.service does. The kernel has its
// arguments already.
func enterNext(h *hostdir.Host) {
	h.SoftReboot()
	h.SoftReboots = func() (uint32, error) { return 0, nil }
	h.Write(starts.EnteredMark, nil)
	h.Write("/proc/cmdline", []byte(h.Options()))
}

// TestEnterSystem (P96): a first boot that enters the committed system is proven and closed in the same boot, without a reboot.
func TestEnterSystem(t *testing.T) {
	h := newHost(t)
	wantsToEnter(h)
	e := &entersHere{}
	notes, outcome, err := enterEarly(t, h, e)
	if err != nil || h.Reboots != 0 || outcome != machine.OutcomeEntering || !strings.Contains(notes, "without a reboot") {
		t.Fatalf("%v, outcome %s, %d reboots:\n%s", err, outcome, h.Reboots, notes)
	}
	all, err := h.Sysroot().Deployments()
	must(t, err)
	if all[0].ID() != e.requested {
		t.Errorf("it asks for %s, want the default %s", e.requested, all[0].ID())
	}
	before, err := h.Start()
	must(t, err)
	enterNext(h)
	after, err := h.Start()
	must(t, err)
	if before == after || before.Boot() != after.Boot() || !after.Entered() {
		t.Errorf("the starts %s and %s are not two of one boot", before, after)
	}
	expectStatusAt(t, h, pivot.PhaseDone)
	must(t, boot(t, h))
	expectNew(t, h)
	expectClosed(t, h)
	if h.Reboots != 0 {
		t.Errorf("%d reboots", h.Reboots)
	}
	expectStatusAt(t, h, pivot.PhaseDone)
}

// TestEnterOrReboot (P96): whatever is missing for entering ends in the reboot, with the reason.
func TestEnterOrReboot(t *testing.T) {
	for name, e := range map[string]*entersHere{
		"what runs is not known": {unread: errors.New("no kernel command line")},
		"a condition is missing": {refused: errors.New("another kernel")},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			wantsToEnter(h)
			notes, outcome, err := enterEarly(t, h, e)
			if err != nil || h.Reboots != 1 || outcome != machine.OutcomeRebooting || !strings.Contains(notes, "a reboot: "+errors.Join(e.unread, e.refused).Error()) {
				t.Errorf("%v, outcome %s, %d reboots:\n%s", err, outcome, h.Reboots, notes)
			}
			h.Boot()
			must(t, boot(t, h))
			expectNew(t, h)
		})
	}
	t.Run("in the started system", func(t *testing.T) {
		h := newHost(t)
		wantsToEnter(h)
		must(t, boot(t, h))
		if h.Reboots != 1 {
			t.Errorf("%d reboots", h.Reboots)
		}
	})
}

// TestEnteredIncomplete (P96): a system that was entered, and is not what was asked for, is another attempt, as after a
// reboot.
func TestEnteredIncomplete(t *testing.T) {
	h := newHost(t)
	wantsToEnter(h)
	_, _, err := enterEarly(t, h, &entersHere{})
	must(t, err)
	enterNext(h)
	h.Write(pinning.KubeletPath, []byte("changed"))
	must(t, boot(t, h))
	if journal, err := pivot.JournalIn(h.Root).Load(); err != nil || journal.Attempt != 2 || h.Reboots != 1 {
		t.Errorf("attempt %d, %d reboots, %v", journal.Attempt, h.Reboots, err)
	}
}

// TestEnterPlanned (P96): a plan says what it expects.
func TestEnterPlanned(t *testing.T) {
	h := newHost(t)
	wantsToEnter(h)
	b := firstboot.FirstBoot{Machine: newMachine(t, h), File: firstboot.EncapsulatedPath}
	plan, err := b.Plan(t.Context())
	must(t, err)
	if text := strings.Join(plan.Notes, "\n"); !strings.Contains(text, "because the kernel arguments change") {
		t.Errorf("notes %q", plan.Notes)
	}
}
