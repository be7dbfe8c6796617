package rpmostree

import (
	"maps"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// checkLayers returns an error unless a deployment changes its image as the booted one does, plus or minus what is
// asked of packages. Each key of its origin is compared (rust/src/origin.rs has all of them), since rpm-ostree may have
// started from another deployment, and somebody else may have staged this one.
func checkLayers(booted, made ostree.Origin, asked pivot.Packages) error {
	had, has := booted.Layers(), made.Layers()
	var wrong []string
	for _, key := range slices.Sorted(maps.Keys(union(had, has))) {
		for _, entry := range without(had[key], has[key]) {
			if !mayLose(key, entry, asked) {
				wrong = append(wrong, "lacks "+entry)
			}
		}
		for _, entry := range without(has[key], had[key]) {
			if !mayGain(key, entry, asked) {
				wrong = append(wrong, "has "+entry)
			}
		}
		if len(wrong) > 0 {
			return fault.New(fault.Internal, "cannot trust the staged deployment: unlike the running system, it changes the image by another %s: it %s", key, strings.Join(wrong, ", ")).
				WithHint("the next boot is unchanged; make the running system the first in boot order (rpm-ostree status shows the order), and try again")
		}
	}
	return nil
}

func union(a, b map[string][]string) map[string][]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// The keys of an origin that changes of packages change.
const (
	requestedKey = "packages/requested"
	localKey     = "packages/requested-local"
	overrideKey  = "packages/requested-local-fileoverride"
	removedKey   = "overrides/remove"
)

// mayLose reports whether a deployment for what is asked of packages may lack an entry of the booted one's origin.
func mayLose(key, entry string, asked pivot.Packages) bool {
	switch key {
	case requestedKey:
		return slices.Contains(asked.Names(pivot.PackageAbsent, pivot.PackageDefault), entry)
	case localKey, overrideKey:
		_, nevra, _ := strings.Cut(entry, ":")
		return slices.Contains(asked.Names(pivot.PackageAbsent, pivot.PackageDefault), ostree.PackageName(nevra))
	case removedKey:
		return slices.Contains(asked.Names(pivot.PackagePresent, pivot.PackageDefault), entry)
	}
	return false
}

// mayGain reports whether such a deployment may have an entry that the booted one lacks.
func mayGain(key, entry string, asked pivot.Packages) bool {
	switch key {
	case requestedKey:
		return slices.Contains(asked.Names(pivot.PackagePresent, pivot.PackageOffered), entry)
	case removedKey:
		return slices.Contains(asked.Names(pivot.PackageAbsent), entry)
	}
	return false
}
