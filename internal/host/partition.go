package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pinning"
)

// CPUs reads the machine's CPUs from sysfs: which are present, which are online, and which are
// threads of the same core. The error is fs.ErrNotExist if there is no sysfs.
func (h *Host) CPUs() (pinning.Machine, error) {
	const dir = "/sys/devices/system/cpu"
	var m pinning.Machine
	var err error
	if m.Present, err = h.PresentCPUs(); err != nil {
		return pinning.Machine{}, err
	}
	if m.Online, err = h.cpuSet(dir + "/online"); errors.Is(err, fs.ErrNotExist) {
		m.Online = m.Present
	} else if err != nil {
		return pinning.Machine{}, err
	}
	m.CoresKnown = true
	for _, cpu := range m.Online.List() {
		core, err := h.cpuSet(fmt.Sprintf("%s/cpu%d/topology/thread_siblings_list", dir, cpu))
		if errors.Is(err, fs.ErrNotExist) {
			m.CoresKnown = false
			continue // some architectures and containers have no topology
		}
		if err != nil {
			return pinning.Machine{}, err
		}
		if core.Size() > 1 && core.List()[0] == cpu { // each core once
			m.Cores = append(m.Cores, core)
		}
	}
	return m, nil
}

func (h *Host) cpuSet(path string) (pinning.CPUSet, error) {
	line, err := h.readLine(path)
	if err != nil {
		return pinning.CPUSet{}, err
	}
	set, err := pinning.ParseCPUSet(line)
	if err != nil {
		return pinning.CPUSet{}, fmt.Errorf("cannot read %s: %w", h.Path(path), err)
	}
	return set, nil
}

// PartitionFiles reads all existing files that determine CPU partitioning, by path: CRI-O's
// configuration, in the way in which CRI-O reads it, and kubelet's.
func (h *Host) PartitionFiles() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, path := range pinning.Paths() {
		if err := h.readInto(files, path); err != nil {
			return nil, err
		}
	}
	dir := h.Path(pinning.DropInDir)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && entry.IsDir() {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read CRI-O's configuration: %w", err)
		}
		return h.readInto(files, pinning.DropInDir+path[len(dir):])
	})
	return files, err
}

// WorkloadTypes returns the workload types in kubelet's pinning file; none if there is no file.
func (h *Host) WorkloadTypes() ([]string, error) {
	data, err := hostfiles.ReadSettings(h.Root, pinning.KubeletPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.BadInput, "cannot read %s: %w", pinning.KubeletPath, err)
	}
	return pinning.Types(data)
}

// readInto reads a file, if it exists, and follows symbolic links, as CRI-O and kubelet do.
func (h *Host) readInto(files map[string][]byte, path string) error {
	data, err := hostfiles.ReadDropIn(h.Root, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, hostfiles.ErrNotRegular):
		return fault.New(fault.Refused, "cannot read %s: %w", path, err).WithHint("put a regular file there, or remove it: nothing else can be CRI-O's or kubelet's configuration")
	case err != nil:
		return fmt.Errorf("cannot observe the host: %w", err)
	}
	files[path] = data
	return nil
}
