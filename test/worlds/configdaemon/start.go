package configdaemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
)

const prefix = "machineconfiguration.openshift.io/"

// Start does what the daemon does when it starts on a node with annotations, in a cluster with the named
// MachineConfigs, and returns the annotations that it leaves. An error is why the node becomes degraded,
// or would be rebooted. If an update begins, the state is Working.
func (d Daemon) Start(node map[string]string, cluster map[string][]byte) (map[string]string, error) {
	after := maps.Clone(node)
	if err := d.initial(after); err != nil {
		return after, err
	}
	current, err := named(cluster, after[prefix+"currentConfig"])
	if err != nil {
		return after, err
	}
	desired, err := named(cluster, after[prefix+"desiredConfig"])
	if err != nil {
		return after, err
	}
	image := after[prefix+"currentImage"]
	if d.there(NodeAnnotations) { // it has never run here
		if d.Image != current.Spec.OSImageURL {
			return after, errors.New("it would reboot into the image of " + current.Metadata.Name)
		}
		if err := d.firstTime(cluster[current.Metadata.Name]); err != nil {
			return after, err
		}
	} else if mc, onDisk, err := d.readCurrent(); err == nil {
		current, image = mc, onDisk
	} else if !errors.Is(err, fs.ErrNotExist) {
		return after, err
	}
	if err := d.Validate(current); err != nil {
		return after, fmt.Errorf("unexpected on-disk state validating against %s: %w", current.Metadata.Name, err)
	}
	after[prefix+"currentConfig"] = current.Metadata.Name
	if current.Metadata.Name != desired.Metadata.Name || image != after[prefix+"desiredImage"] {
		after[prefix+"state"] = "Working"
		return after, nil
	}
	after[prefix+"desiredDrain"] = "uncordon-" + desired.Metadata.Name
	if after[prefix+"lastAppliedDrain"] != after[prefix+"desiredDrain"] {
		return after, errors.New("it waits for the drain controller to uncordon the node")
	}
	after[prefix+"state"], after[prefix+"reason"] = "Done", ""
	return after, nil
}

// initial sets the annotations of a node that has none.
func (d Daemon) initial(node map[string]string) error {
	if node[prefix+"currentConfig"] != "" {
		return nil
	}
	data, err := os.ReadFile(d.path(NodeAnnotations))
	if err == nil {
		return json.Unmarshal(data, &node)
	}
	mc, _, err := d.readCurrent()
	if err == nil {
		node[prefix+"currentConfig"] = mc.Metadata.Name
	}
	return err
}

// firstTime makes the cluster's MachineConfig the host's.
func (d Daemon) firstTime(config []byte) error {
	return errors.Join(os.Rename(d.path(NodeAnnotations), d.path(annotationsAfter)), d.write(CurrentConfig, config, 0o644), d.write(CurrentImage, nil, 0o644))
}

func named(cluster map[string][]byte, name string) (MachineConfig, error) {
	data, there := cluster[name]
	if !there {
		return MachineConfig{}, fmt.Errorf("machineconfig %q not found", name)
	}
	return Parse(data)
}
