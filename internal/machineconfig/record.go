package machineconfig

import (
	"encoding/json"
	"fmt"
)

// RecordPath is where a system keeps the MachineConfig that it was made from. It is in the
// deployment's /etc, so each deployment has its own.
const RecordPath = "/etc/pivot/machineconfig.json"

// Record returns the MachineConfig as a system keeps it: what it requests, without metadata
// that changes independently, in one form regardless of the input's format. Settings that were
// left out have the machine's values. ParseRecord reads it.
func (d *Desired) Record() ([]byte, error) {
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
