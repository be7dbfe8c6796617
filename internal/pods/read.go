package pods

import (
	"os"
	"path"
	"path/filepath"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// Limits on the size of manifests, in bytes.
const (
	maxManifest = 10 << 20 // of one: kubelet reads no larger one
	maxSum      = 64 << 20 // of all
)

// read returns a pod as it is to be written, with the mode of its source. isPod is false for a directory,
// which kubelet would ignore, too.
func (u *update) read(name string) (f hostfiles.File, isPod bool, err error) {
	source := path.Join(u.From, name)
	info, err := os.Stat(filepath.Join(u.Root, source))
	if err != nil {
		return f, true, fault.New(fault.BadInput, "cannot read the static pod: %w", err)
	}
	if info.IsDir() {
		return f, false, nil
	}
	data, err := hostfiles.ReadSettings(u.Root, source)
	switch {
	case err != nil:
		return f, true, fault.New(fault.BadInput, "cannot read the static pod %s: %w", source, err)
	case len(data) > maxManifest:
		return f, true, fault.New(fault.BadInput, "cannot use the static pod %s: kubelet reads no manifest of more than %d bytes", source, maxManifest).
			WithHint("shorten %s; move data of the pod into a file that it mounts", source)
	}
	if err := u.sum.Take(int64(len(data))); err != nil {
		return f, true, fault.New(fault.BadInput, "cannot use the static pods of %s: %w", u.From, err)
	}
	if data, err = u.changed(source, data); err != nil {
		return f, true, err
	}
	return hostfiles.NewFile(path.Join(u.To, name), info.Mode().Perm(), data), true, nil
}

// changed returns a manifest as kubelet has to read it. Without a workload type of this machine it stays as it
// is; without any type, nothing of it is read.
func (u *update) changed(source string, manifest []byte) ([]byte, error) {
	if len(u.Types) == 0 {
		return manifest, nil
	}
	chosen, report := Chosen(source, manifest)
	if err := report.Err("the static pod " + source); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(chosen, func(workload string) bool { return slices.Contains(u.Types, workload) }) {
		for _, workload := range chosen {
			u.Note(source + " is not changed: this machine has no workload " + workload)
		}
		return manifest, nil
	}
	out, decision, report := Mutate(source, manifest, Options{Unrequested: true})
	if err := report.Err("the static pod " + source); err != nil {
		return nil, err
	}
	if decision.Warning != "" {
		u.Note(source + ": " + decision.Warning)
	}
	return out, nil
}
