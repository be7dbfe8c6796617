package firstboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/mcfile"
	"machine-pivot/pivot"
)

// applied returns the machine's current MachineConfig: from its record, or, if none was ever
// applied, from the machine-config-daemon's, or from the first boot. It is empty for a machine
// that never had one. FIPS mode is that of the running kernel. takenOver reports whether the
// MachineConfig is the daemon's. facts are those that the next MachineConfig is checked with: what
// they refuse in both is no change.
func (a *Apply) applied(facts mcfile.Host) (desired *mcfile.Desired, takenOver bool, err error) {
	fips, err := a.Host.FIPS()
	if err != nil {
		return nil, false, err
	}
	desired, from, err := a.recorded(facts)
	if err != nil {
		return nil, false, err
	}
	desired.SetFIPS(fips)
	return desired, from == daemonRecord, nil
}

// recorded returns the newest record and its path, which is "" if there is none.
func (a *Apply) recorded(facts mcfile.Host) (desired *mcfile.Desired, path string, err error) {
	for _, path := range []string{mcfile.RecordPath, daemonRecord, EncapsulatedPath + closedSuffix} {
		file := hostfiles.StateFile{Root: a.Host.Root, Path: path, Remedy: "move the file away; then nothing of what it asked for is removed"}
		data, err := file.Read()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if path == daemonRecord {
			return a.takeOver(facts, data, err), path, nil
		}
		if err != nil {
			return nil, path, fmt.Errorf("cannot read the MachineConfig that this machine has: %w", err)
		}
		desired, report := mcfile.ParseRecord(data, facts)
		if report.Failed() {
			return nil, path, fault.New(fault.Refused, "cannot use the MachineConfig that this machine has: %w", report.Err(path)).
				WithHint("move the file away; then nothing of what it asked for is removed")
		}
		return desired, path, nil
	}
	return &mcfile.Desired{}, "", nil
}

// leftOutFile returns the file that lists what is left out of a MachineConfig; if nothing is
// left out, the entry that removes the file. With mcfile.Replace it returns an error
// instead of leaving anything out.
func (a *Apply) leftOutFile(desired *mcfile.Desired) (hostfiles.File, error) {
	if len(desired.LeftOut) == 0 {
		return hostfiles.Default(mcfile.LeftOutPath), nil
	}
	if a.Unsupported == mcfile.Replace {
		return hostfiles.File{}, fault.New(fault.Replace, "this machine must be replaced: only an installation can make it what MachineConfig %s asks for: %s",
			a.File, strings.Join(desired.LeftOut, ", ")).
			WithHint("install a machine anew from the MachineConfig; nothing was changed here")
	}
	names, err := json.MarshalIndent(desired.LeftOut, "", "  ")
	return hostfiles.NewFile(mcfile.LeftOutPath, 0o644, append(names, '\n')), err
}

// leftOut returns the names of what was left out of the current MachineConfig.
func (m *Machine) leftOut() (names []string, err error) {
	file := hostfiles.StateFile{Root: m.Host.Root, Path: mcfile.LeftOutPath, Remedy: "apply the MachineConfig again"}
	err = file.Decode(&names)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot tell what was left out of the MachineConfig: %w", err)
	}
	return names, nil
}

// recordOnly writes the records of a MachineConfig that the machine already matches. It also
// sets the journal's target, which later comparisons use, unless another system waits for its
// reboot.
func (a *Apply) recordOnly(plan pivot.Plan, ask applyAsk) error {
	if err := errors.Join(a.saveRecord(ask.record), a.saveRecord(ask.leftOut)); err != nil || plan.From().Pending() {
		return err
	}
	return a.recordTarget(ask.finalTarget(plan))
}

// finalTarget returns the plan's target with the records of its MachineConfig. It drops the
// removals of links that units still need. For a repair it returns the last target.
func (ask applyAsk) finalTarget(plan pivot.Plan) pivot.Target {
	if ask.last != nil {
		return *ask.last
	}
	target := plan.To()
	units := plan.From().Etc.Units.By
	target.Entries = slices.DeleteFunc(slices.Clone(target.Entries), func(e hostfiles.Entry) bool {
		return e.Kind == hostfiles.KindDefault && units[e.Path] != ""
	})
	target.Entries = append(target.Entries, ask.record.Entry, ask.leftOut.Entry)
	return target
}

// saveRecord writes a record into the running /etc, or removes it.
func (a *Apply) saveRecord(record hostfiles.File) error {
	labels, err := hostfiles.RunningLabels(a.Host.Root)
	if err == nil {
		err = a.putInRunningEtc(record, labels)
	}
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot keep the record of the MachineConfig: %w", err)
	}
	return nil
}
