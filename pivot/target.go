// Package pivot is the core: a machine's current State, its wanted Target, their difference (Plan), the Transaction
// that carries out the plan, and the Journal that survives a power cut.
//
// Data flows in one direction: Target and State to Plan to Transaction. The only exception is
// that each run observes State anew, so an interrupted run is resumed by planning again, never
// by replaying steps.
package pivot

import (
	"slices"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/verdict"
	"machine-pivot/kargs"
)

// Target is the wanted state of a machine after its one reboot.
type Target struct {
	Image Image `json:"image,omitzero"` // zero keeps the booted image
	// Kargs are the changes of the kernel arguments. Kargs.Image has the arguments that the
	// images bring: nil if they are not applied, and empty until they are known.
	Kargs kargs.Change `json:"kargs"`
	// Entries are below /etc and /var. Owners by name are looked up in the target's system.
	Entries []hostfiles.Entry `json:"files,omitempty"`
	// Units are enabled or disabled by links, which are resolved separately in each system.
	Units    enable.Units `json:"units,omitzero"`
	Packages Packages     `json:"packages,omitzero"`
	// MachineConfig is the one that requests this; zero if none does.
	MachineConfig MachineConfig `json:"machineConfig,omitzero"`
	// WithoutBoundImages says that application images which the OS image binds may be missing. It holds until the target
	// is proven, whoever proves it: the run that commits a target may be told so by a flag that no later one has.
	WithoutBoundImages bool `json:"withoutBoundImages,omitempty"`
	// Accepted is what would have refused the image, had nobody accepted it. It is only learned during a run.
	Accepted []verdict.Accepted `json:"accepted,omitempty"`
}

// MachineConfig identifies a MachineConfig.
type MachineConfig struct {
	Name string `json:"name"` // as its author has named it; may be empty
	// Digest is that of the file in which the machine keeps it.
	Digest hostfiles.Digest `json:"digest"`
}

// Same reports whether both targets request the same. It ignores what is only learned during a run: an image's commit,
// its version, the kernel arguments that it brings and what speaks against it. It ignores the MachineConfig, because
// its request is in the rest, and what may be missing.
func (t Target) Same(other Target) bool {
	return (t.Image.Same(other.Image) || t.Image.Digest == "" && other.Image.Digest == "") &&
		t.Kargs.Old.Equal(other.Kargs.Old) && t.Kargs.New.Equal(other.Kargs.New) && t.Kargs.Delete.Equal(other.Kargs.Delete) &&
		(t.Kargs.Image == nil) == (other.Kargs.Image == nil) &&
		slices.Equal(t.Entries, other.Entries) && t.Units.Same(other.Units) && t.Packages.same(other.Packages)
}

// Paths returns the paths of the target's entries.
func (t Target) Paths() []string {
	paths := make([]string, len(t.Entries))
	for i, f := range t.Entries {
		paths[i] = f.Path
	}
	return paths
}

// With returns the target with those of entries at paths that it does not have yet.
func (t Target) With(entries []hostfiles.Entry) Target {
	has := map[string]bool{}
	for _, e := range t.Entries {
		has[e.Path] = true
	}
	t.Entries = slices.Clone(t.Entries)
	for _, e := range entries {
		if !has[e.Path] {
			t.Entries = append(t.Entries, e)
		}
	}
	return t
}
