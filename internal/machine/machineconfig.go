package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// machineConfigAt identifies the MachineConfig in the first of several files below a root directory,
// and returns the file's path; nil if there is none of them.
func machineConfigAt(root string, paths ...string) (mc *pivot.MachineConfig, path string, err error) {
	for _, path := range paths {
		f, there, err := hostfiles.Read(root, path)
		if err != nil {
			return nil, path, fmt.Errorf("cannot tell which MachineConfig is in %s: %w", path, err)
		}
		if !there {
			continue
		}
		var named struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		mc = &pivot.MachineConfig{Digest: f.Digest}
		if err := json.Unmarshal(f.Content, &named); err != nil {
			return mc, path, fmt.Errorf("cannot tell the name of the MachineConfig in %s: %w", path, err)
		}
		mc.Name = named.Metadata.Name
		return mc, path, nil
	}
	return nil, "", nil
}

// MachineConfigOf identifies the MachineConfig of the deployment with a root directory; nil if it has
// none.
func MachineConfigOf(root string) (*pivot.MachineConfig, error) {
	mc, _, err := machineConfigAt(root, machineconfig.CurrentPaths()...)
	return mc, err
}

// nameConfigs adds the running system's MachineConfig to a status, and the one that it should have. That is an open
// first boot's, else the last one that pivot was asked for, else the next boot's. What cannot be told is a note.
func (m *Machine) nameConfigs(s *status.Status, journal pivot.JournalContent) {
	note := func(err error) {
		if err != nil {
			s.Notes = append(s.Notes, err.Error())
		}
	}
	current, path, err := machineConfigAt(m.Host.Root, machineconfig.CurrentPaths()...)
	note(err)
	desired, _, err := machineConfigAt(m.Host.Root, machineconfig.OpenPaths()...)
	note(err)
	if asked := journal.Target.MachineConfig; desired == nil && asked != (pivot.MachineConfig{}) {
		desired = &asked
	}
	if next := m.nextDeployment(); desired == nil && next != nil {
		desired, err = MachineConfigOf(next.Path)
		note(err)
	}
	if desired == nil {
		desired = current
	}
	if desired != nil {
		s.MachineConfig = &status.MachineConfigs{Current: current, Desired: desired}
	}
	if current != nil {
		s.MachineConfig.RecordedBy = string(machineconfig.RecorderOf(path))
	}
}

// nextDeployment returns the deployment that the next boot starts; nil if it is the running one, or
// not known.
func (m *Machine) nextDeployment() *ostree.Deployment {
	all, err := m.Host.Sysroot().Deployments()
	if err != nil || len(all) == 0 {
		return nil
	}
	if booted, err := m.Host.Sysroot().Booted(); err != nil || booted.ID() == all[0].ID() {
		return nil
	}
	return &all[0]
}

// LeftOut returns the names of what was left out of the current MachineConfig.
func (m *Machine) LeftOut() (names []string, err error) {
	file := hostfiles.StateFile{Root: m.Host.Root, Path: machineconfig.LeftOutPath, Remedy: "apply the MachineConfig again"}
	err = file.Decode(&names)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot tell what was left out of the MachineConfig: %w", err)
	}
	return names, nil
}
