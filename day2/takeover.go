package day2

import (
	"cmp"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
	"machine-pivot/internal/projection"
)

// The first "pivot apply" takes over a machine that the machine-config-daemon managed. The
// machine's MachineConfig is in the daemon's own files, which pivot does not change.

// takeOver returns what can be used of the daemon's MachineConfig. Its file was read as data and err. What the daemon
// accepted, or what has damaged the file since, must not keep the machine from its next MachineConfig; but nothing that
// is not understood is removed.
func takeOver(m *machine.Machine, facts machineconfig.Host, data []byte, err error) *machineconfig.MachineConfig {
	desired, report := &machineconfig.MachineConfig{}, problem.Report{problem.Warningf("", "%v", err)}
	if err == nil {
		desired, report = machineconfig.ParseForeign(data, facts)
	}
	m.Progress.Note("taking over from the machine-config-daemon: the machine has its MachineConfig " + cmp.Or(desired.Name, "of unknown name"))
	for _, p := range report {
		m.Progress.Note("not taken over, so it stays as it is on this machine: " + p.Text())
	}
	return desired
}

// replacementAt returns the entry for a path that no MachineConfig asks for any more. It is the
// image's default; on a machine that is taken over, the administrator's file that the daemon
// has kept, unless that is the image's default.
func (a *Apply) replacementAt(path string, takenOver bool) (hostfiles.File, error) {
	none := hostfiles.Default(path)
	if !takenOver || projection.Outside(path) || none.OnDisk() != path {
		return none, nil
	}
	kept, there, err := hostfiles.Read(a.Host.Root, daemonOriginal(path))
	if err != nil || !there || kept.Kind != hostfiles.KindFile {
		return none, err
	}
	kept.Path = path
	shipped, _, err := hostfiles.Read(a.Host.Path("/usr"), path)
	if err != nil || shipped.Entry == kept.Entry {
		return none, err
	}
	a.Progress.Note(path + ": the file that the machine-config-daemon had replaced comes back")
	return kept, nil
}
