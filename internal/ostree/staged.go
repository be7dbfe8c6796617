package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	Held               bool // libostree cannot finalize it, locked or not: see HeldBack

	entries []any // all entries of the file's dictionary, in order
}

// heldSuffix follows the stateroot of the merge deployment in the state of a deployment that is held back.
const heldSuffix = ".held-back"

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

// Next reports whether a shutdown makes a staged deployment the next boot. It does not if there is none, and not if
// somebody holds it back.
func (s *Staged) Next() bool { return s != nil && !s.Locked && !s.Held }

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
		s.Merge.Stateroot, s.Held = strings.CutSuffix(s.Merge.Stateroot, heldSuffix)
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

// Unlocked returns the content of StagedFile with these kernel arguments and keys of the boot entry, and without a
// lock. So libostree finalizes the deployment, unless it is held back. All other entries are unchanged.
func (s *Staged) Unlocked(arguments []string, keys []Key) ([]byte, error) {
	list := make([]any, len(arguments))
	for i, arg := range arguments {
		list[i] = arg
	}
	values := []gvariant.Tuple{{"kargs", gvariant.Variant{Type: "as", Value: list}}}
	if len(keys) > 0 {
		extra := make([]any, len(keys))
		for i, k := range keys {
			extra[i] = gvariant.Tuple{k.Name, k.Value}
		}
		values = append(values, gvariant.Tuple{extraKeys, gvariant.Variant{Type: "a{ss}", Value: extra}})
	}
	return s.with(values, "locked")
}

// HeldBack returns the content of StagedFile with which nobody can finalize the deployment, whatever its lock says: its merge
// deployment has a stateroot that does not exist. libostree looks for that one only when it finalizes, and fails before it
// has changed anything; whoever unlocks the deployment passes it on (_ostree_sysroot_finalize_staged_inner,
// ostree_sysroot_change_finalization in ostree-sysroot-deploy.c). All other entries are unchanged.
func (s *Staged) HeldBack() ([]byte, error) { return s.withMerge(s.Merge.Stateroot + heldSuffix) }

// Released returns s as it was before it was held back.
func (s *Staged) Released() (*Staged, error) {
	data, err := s.withMerge(s.Merge.Stateroot)
	if err != nil {
		return nil, err
	}
	return ParseStaged(data)
}

// withMerge returns the content of StagedFile with another stateroot of the merge deployment.
func (s *Staged) withMerge(stateroot string) ([]byte, error) {
	for _, entry := range s.entries {
		value, _ := entry.(gvariant.Tuple)[1].(gvariant.Variant)
		merge, is := value.Value.([]any)
		if entry.(gvariant.Tuple)[0] != "merge-deployment" || !is {
			continue
		}
		merge = slices.Clone(merge)
		for i, part := range merge {
			if part.(gvariant.Tuple)[0] == "osname" {
				merge[i] = gvariant.Tuple{"osname", gvariant.Variant{Type: "s", Value: stateroot}}
			}
		}
		return s.with([]gvariant.Tuple{{"merge-deployment", gvariant.Variant{Type: value.Type, Value: merge}}})
	}
	return nil, errors.New("cannot hold the staged deployment back: it has no merge deployment")
}

// with returns the content of StagedFile with other values of some keys, and without others.
func (s *Staged) with(values []gvariant.Tuple, without ...string) ([]byte, error) {
	for _, value := range values {
		without = append(without, value[0].(string))
	}
	var entries []any
	for _, entry := range s.entries {
		if name, _ := entry.(gvariant.Tuple)[0].(string); !slices.Contains(without, name) {
			entries = append(entries, entry)
		}
	}
	for _, value := range values {
		entries = append(entries, value)
	}
	data, err := gvariant.Encode("a{sv}", entries)
	if err != nil {
		return nil, fmt.Errorf("cannot write the staged deployment: %w", err)
	}
	return data, nil
}
