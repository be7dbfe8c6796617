package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"machine-pivot/ostree/gvariant"
)

// Staged is a deployment that is made but that no boot entry names yet: the
// content of /run/ostree/staged-deployment.
type Staged struct {
	Target             DeploymentRef
	Merge              DeploymentRef // whose /etc and, without arguments, whose options it inherits
	KernelArguments    []string
	HasKernelArguments bool
	Locked             bool // libostree will not finalize it
}

// Staged reads the staged deployment; nil if there is none.
func (s *Sysroot) Staged() (*Staged, error) {
	data, err := os.ReadFile(filepath.Join(s.root, "run/ostree/staged-deployment"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the staged deployment: %w", err)
	}
	staged, err := ParseStaged(data)
	if err != nil {
		return nil, err
	}
	// How clients locked before libostree 2023.8.
	if _, err := os.Stat(filepath.Join(s.root, "run/ostree/staged-deployment-locked")); err == nil {
		staged.Locked = true
	}
	return staged, nil
}

// ParseStaged reads the staged state (an a{sv} in the host's byte order, which
// on the supported hosts is little-endian).
func ParseStaged(data []byte) (*Staged, error) {
	value, err := gvariant.Decode("a{sv}", data)
	if err != nil {
		return nil, fmt.Errorf("cannot read the staged deployment: %w", err)
	}
	dict := dictionary(value)
	s := &Staged{}
	if s.Target, err = stagedRef(dict["target"]); err != nil {
		return nil, fmt.Errorf("cannot read the staged deployment: target: %w", err)
	}
	if merge, ok := dict["merge-deployment"]; ok {
		if s.Merge, err = stagedRef(merge); err != nil {
			return nil, fmt.Errorf("cannot read the staged deployment: merge-deployment: %w", err)
		}
	}
	if args, ok := dict["kargs"].([]any); ok {
		s.HasKernelArguments = true
		for _, arg := range args {
			text, _ := arg.(string)
			s.KernelArguments = append(s.KernelArguments, text)
		}
	}
	s.Locked, _ = dict["locked"].(bool)
	return s, nil
}

// stagedRef reads a deployment's name as the staged state has it.
func stagedRef(value any) (ref DeploymentRef, err error) {
	dict := dictionary(value)
	name, _ := dict["name"].(string)
	ref.Stateroot, _ = dict["osname"].(string)
	ref.Checksum, ref.Serial, err = parseTargetName(name)
	return ref, err
}
