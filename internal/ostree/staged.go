package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"machine-pivot/internal/ostree/gvariant"
)

// Staged is the content of /run/ostree/staged-deployment. It describes the staged deployment,
// which has no boot entry yet.
type Staged struct {
	Target             DeploymentRef
	Merge              DeploymentRef // the merge deployment: source of /etc and, without KernelArguments, of the kernel arguments
	KernelArguments    []string
	HasKernelArguments bool
	Locked             bool // libostree does not finalize a locked deployment

	entries []any // all entries of the file's dictionary, in order
}

// The names of the two files in RunDir that describe the staged deployment.
const (
	StagedFile = "staged-deployment"
	// LockFile locks the staged deployment if it exists. libostree older than 2023.8 knows no
	// other lock; all versions honour the file.
	LockFile = "staged-deployment-locked"
)

// RunDir returns the directory in which libostree keeps files until the next boot.
func (s *Sysroot) RunDir() string { return filepath.Join(s.root, "run/ostree") }

// Staged reads the staged deployment. It returns nil if there is none.
func (s *Sysroot) Staged() (*Staged, error) {
	data, err := os.ReadFile(filepath.Join(s.RunDir(), StagedFile))
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
	if _, err := os.Stat(filepath.Join(s.RunDir(), LockFile)); err == nil {
		staged.Locked = true
	}
	return staged, nil
}

// Next reports whether a shutdown makes a staged deployment the next boot. It does not if there is none, and not if the
// deployment is locked: then somebody holds it back.
func (s *Staged) Next() bool { return s != nil && !s.Locked }

// ParseStaged parses the content of StagedFile, an a{sv} in the host's byte order,
// which is little-endian on all supported hosts.
func ParseStaged(data []byte) (*Staged, error) {
	value, err := gvariant.Decode("a{sv}", data)
	if err != nil {
		return nil, fmt.Errorf("cannot read the staged deployment: %w", err)
	}
	dict := dictionary(value)
	s := &Staged{entries: value.([]any)}
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

// stagedRef returns the name of a deployment in StagedFile.
func stagedRef(value any) (ref DeploymentRef, err error) {
	dict := dictionary(value)
	name, _ := dict["name"].(string)
	ref.Stateroot, _ = dict["osname"].(string)
	ref.Checksum, ref.Serial, err = parseTargetName(name)
	return ref, err
}

// extraKeys has the keys that libostree since 2026.1 writes into the boot entry.
const extraKeys = "bootconfig-extra"

// Unlocked returns the content of StagedFile with the given kernel arguments and keys of the boot entry, and without a
// lock, so that libostree finalizes the deployment. All other entries are unchanged.
func (s *Staged) Unlocked(arguments []string, keys []Key) ([]byte, error) {
	list := make([]any, len(arguments))
	for i, arg := range arguments {
		list[i] = arg
	}
	var entries []any
	for _, entry := range s.entries {
		if key := entry.(gvariant.Tuple)[0]; key != "kargs" && key != "locked" && (key != extraKeys || len(keys) == 0) {
			entries = append(entries, entry)
		}
	}
	entries = append(entries, gvariant.Tuple{"kargs", gvariant.Variant{Type: "as", Value: list}})
	if len(keys) > 0 {
		extra := make([]any, len(keys))
		for i, k := range keys {
			extra[i] = gvariant.Tuple{k.Name, k.Value}
		}
		entries = append(entries, gvariant.Tuple{extraKeys, gvariant.Variant{Type: "a{ss}", Value: extra}})
	}
	data, err := gvariant.Encode("a{sv}", entries)
	if err != nil {
		return nil, fmt.Errorf("cannot write the staged deployment: %w", err)
	}
	return data, nil
}
