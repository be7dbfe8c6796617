package machineconfig

import (
	"encoding/json"
	"fmt"
)

const (
	// EncapsulatedPath is where Ignition writes the encapsulated MachineConfig. Others take its absence for the end of the first boot,
	// as the machine-config operator promises: NetworkManager-clean-initrd-state.service among them.
	EncapsulatedPath = "/etc/ignition-machine-config-encapsulated.json"
	// CommittedPath is where the deployment has it that a first boot has committed, until that first boot is closed. It is
	// pivot's own.
	CommittedPath = EncapsulatedPath + ".committed"
	// OpenGlob matches both in the condition of a unit.
	OpenGlob = EncapsulatedPath + "{,.committed}"
	// ClosedSuffix is appended to the file's name when the first boot is closed.
	ClosedSuffix = ".bak"
	ClosedPath   = EncapsulatedPath + ClosedSuffix
	// DaemonPath is the MachineConfig that the machine-config-daemon applied last.
	// Source: pkg/daemon/constants of the machine-config operator.
	DaemonPath = "/etc/machine-config-daemon/currentconfig"
)

// OpenPaths returns the paths of the encapsulated MachineConfig while its first boot is open. The first file that exists
// counts.
func OpenPaths() []string { return []string{EncapsulatedPath, CommittedPath} }

// CurrentPaths returns the paths at which a system has its MachineConfig. The first file that exists
// is the newest.
func CurrentPaths() []string { return []string{RecordPath, DaemonPath, ClosedPath} }

// Recorder is the program that has recorded a system's MachineConfig; the names are stable.
type Recorder string

// The recorders.
const (
	RecordedByPivot     Recorder = "pivot"                 // which has compared all of it with the system
	RecordedByDaemon    Recorder = "machine-config-daemon" // which may have left the system with a part
	RecordedByFirstBoot Recorder = "first-boot"            // Ignition, which has left out the entries
)

// RecorderOf returns the recorder of one of the CurrentPaths.
func RecorderOf(path string) Recorder {
	switch path {
	case RecordPath:
		return RecordedByPivot
	case DaemonPath:
		return RecordedByDaemon
	}
	return RecordedByFirstBoot
}

// RecordPath is where a system keeps the MachineConfig that it was made from. It is in the
// deployment's /etc, so each deployment has its own.
const RecordPath = "/etc/pivot/machineconfig.json"

// Record returns the MachineConfig as a system keeps it: what it requests, without metadata
// that changes independently, in one form regardless of the input's format. Settings that were
// left out have the machine's values. ParseRecord reads it.
func (d *MachineConfig) Record() ([]byte, error) {
	asked := map[string]any{}
	if err := json.Unmarshal(d.asked, &asked); err != nil {
		return nil, fmt.Errorf("cannot keep the MachineConfig: %w", err)
	}
	for _, p := range d.kept {
		p.put(asked)
	}
	type object = map[string]any
	metadata := object{"name": d.Name}
	if d.FromCluster {
		metadata["annotations"] = object{GeneratedBy: ""}
	}
	text, err := json.Marshal(object{"apiVersion": APIVersion, "kind": Kind, "metadata": metadata, "spec": asked})
	return append(text, '\n'), err
}
