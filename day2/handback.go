package day2

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/sepolicy"
	"machine-pivot/pivot"
)

// HandBack gives a machine back to the machine-config-daemon. The system does not change: the daemon's
// files say which MachineConfig it has, and pivot's no longer do.
type HandBack struct {
	*machine.Machine
}

// Run compares the machine with its MachineConfig, and then gives it back. It may be killed and repeated.
func (h *HandBack) Run(ctx context.Context) (changed bool, err error) {
	changed, err = h.attempt(ctx)
	return changed, end(ctx, h.Machine, err)
}

func (h *HandBack) attempt(ctx context.Context) (changed bool, err error) {
	if err := h.Open(); err != nil {
		return false, err
	}
	h.Progress.Begin(pivot.StepRead, "reading the MachineConfig that this machine has")
	if err := h.RequireClosedFirstBoot("give this machine back"); err != nil {
		return false, err
	}
	path, data, err := readCurrent(h.Host.Root)
	if path == machineconfig.DaemonPath {
		return false, h.alreadyBack()
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the MachineConfig that this machine has: %w", err)
	}
	desired := &machineconfig.MachineConfig{}
	if path == machineconfig.RecordPath {
		facts, err := h.Facts()
		if err != nil {
			return false, err
		}
		if desired, err = parseCurrent(path, data, facts); err != nil {
			return false, err
		}
	}
	if err := h.check(ctx, path, data, desired); err != nil {
		return false, err
	}
	h.Report().MachineConfig = &pivot.MachineConfig{Name: desired.Name, Digest: hostfiles.DigestOf(data)}
	if h.Report().LeftOut, err = h.LeftOut(); err != nil {
		return false, err
	}
	h.Progress.Begin(pivot.StepPrepare, "writing what the machine-config-daemon reads")
	if err := h.giveBack(data, desired); err != nil {
		return false, fault.New(fault.CannotWrite, "cannot give this machine back: %w", err)
	}
	h.Report().EndChanged(machine.OutcomeHandedBack)
	h.Progress.Note("the machine has " + desired.Name + ", and is the machine-config-daemon's")
	return true, h.forget()
}

// check returns an error if the machine cannot be given back.
func (h *HandBack) check(ctx context.Context, path string, record []byte, desired *machineconfig.MachineConfig) error {
	h.Progress.Begin(pivot.StepProve, "comparing the machine with its MachineConfig")
	state, differences, err := h.Compare(ctx)
	if err != nil {
		return err
	}
	last := h.Progress.Content
	return handBackFacts{
		Recorded:    path == machineconfig.RecordPath,
		Interrupted: LiveInterrupted(h.Host.Root),
		Trial:       last.Held(),
		Pending:     state.Pending(),
		Asked:       last.Target.MachineConfig.Digest == hostfiles.DigestOf(record) && expectsTarget(last, h.Progress.BootID),
		Differences: pivot.Texts(differences),
		Image:       desired.OSImageURL.String(),
		Booted:      state.Booted.Image.Name.String(),
	}.check()
}

// alreadyBack completes what a killed run has left of the journal.
func (h *HandBack) alreadyBack() error {
	h.Progress.Note("nothing to do: the machine is the machine-config-daemon's")
	if !slices.ContainsFunc(h.Progress.Content.Target.Entries, func(e hostfiles.Entry) bool { return e.Path == machineconfig.RecordPath }) {
		return nil
	}
	return h.forget()
}

// forget removes from the journal what the machine was last asked for, since the daemon may ask for
// something else from now on.
func (h *HandBack) forget() error {
	h.Progress.Content.Target = pivot.Target{}
	return h.Progress.Keep()
}

// giveBack writes and removes files. The projection's record is removed before what the system carries:
// in the other order, the next boot after a crash would take back what is outside of /etc.
func (h *HandBack) giveBack(config []byte, desired *machineconfig.MachineConfig) error {
	labels, err := sepolicy.RunningLabels(h.Host.Root)
	if err != nil {
		return err
	}
	has, err := h.has(config, desired)
	if err != nil {
		return err
	}
	carried, err := projection.Read(h.Host.Root)
	if err != nil {
		return err
	}
	for _, f := range daemonFiles(has) {
		if err := h.put(f, labels); err != nil {
			return err
		}
	}
	if err := (&projection.Projector{Root: h.Host.Root, Disk: h.Host.Disk}).Release(); err != nil {
		return err
	}
	for _, f := range slices.Concat(carried.Dropped(), ownRecords()) {
		if err := h.PutInRunningEtc(f, labels); err != nil {
			return err
		}
	}
	return nil
}

// put writes one of the daemon's files, or removes it.
func (h *HandBack) put(f daemonFile, labels sepolicy.Labels) error {
	if f.LabelAs != "" { // the daemon restores it with its label
		labels = labels.As(f.LabelAs)
	}
	return h.PutInRunningEtc(f.File, labels)
}

// has returns what the machine has.
func (h *HandBack) has(config []byte, desired *machineconfig.MachineConfig) (has handedBack, err error) {
	has = handedBack{Config: config, Defaults: map[string]hostfiles.File{}, Kept: map[string]bool{}}
	for _, f := range desired.Entries {
		if f.Kind != hostfiles.KindFile || f.OnDisk() != f.Path || !strings.HasPrefix(f.Path, "/etc/") {
			continue
		}
		has.Paths = append(has.Paths, f.Path)
		shipped, there, err := hostfiles.Read(h.Host.Path("/usr"), f.Path)
		if err != nil {
			return has, err
		}
		if there && shipped.Kind == hostfiles.KindFile && shipped.Whole() {
			has.Defaults[f.Path] = shipped
		}
		original, err := h.Host.Has(daemonOriginal(f.Path))
		stamp, serr := h.Host.Has(daemonStamp(f.Path))
		if err := errors.Join(err, serr); err != nil {
			return has, err
		}
		has.Kept[f.Path] = original || stamp
	}
	annotations, there, err := hostfiles.Read(h.Host.Root, nodeAnnotations)
	if there {
		has.Annotations = &annotations
	}
	return has, err
}
