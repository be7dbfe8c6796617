package osimage

import (
	"context"
	"fmt"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
)

// present lists the parts of an image that a repository has already.
type present struct {
	commit  ostree.Checksum // the encapsulated or legacy commit; zero if it is missing
	layers  []bool          // true for layers that need not be fetched
	derived []keptLayer     // by layer: the derived layers that need not be fetched
	refs    []string        // by layer: the ref that keeps it, or will keep it when it is fetched; nil for a legacy image
}

func (p present) all() bool { return !slices.Contains(p.layers, false) }

// missing returns how many layers must be fetched.
func (p present) missing() (n int) {
	for _, there := range p.layers {
		if !there {
			n++
		}
	}
	return n
}

// present finds the parts of the image that need not be fetched.
func (o *Opened) present(ctx context.Context, repo *ostree.Repo) present {
	have := present{layers: make([]bool, len(o.Layers))}
	if o.Format.Native() {
		o.nativePresent(ctx, repo, &have)
		return have
	}
	commit, err := ostree.ParseChecksum(o.Commit)
	if err == nil && repo.HasWhole(ctx, commit) == nil {
		have = present{commit: commit, layers: slices.Repeat([]bool{true}, len(o.Layers))}
	}
	return have
}

// baseLayers returns how many layers belong to the encapsulated commit.
func (o *Opened) baseLayers() int { return len(o.Layers) - o.Derived }

// nativePresent finds layers by their refs, and checks that their objects exist.
func (o *Opened) nativePresent(ctx context.Context, repo *ostree.Repo, have *present) {
	have.refs = make([]string, len(o.Layers))
	others := true
	for n := o.baseLayers() - 1; n > 0; n-- {
		o.find(have, n, func(ref string) bool {
			commit, err := repo.ResolveRef(ref)
			return err == nil && repo.HasObjectSet(commit) == nil
		})
		others = others && have.layers[n]
	}
	if o.baseLayers() > 0 {
		// The objects of this layer alone are not known, so the whole commit must be complete.
		o.find(have, 0, func(ref string) bool {
			commit, found := encapsulatedBy(repo, ref)
			if found {
				have.commit = commit
			}
			return found && others && repo.HasWhole(ctx, commit) == nil
		})
	}
	have.derived = make([]keptLayer, len(o.Layers))
	for n := o.baseLayers(); n < len(o.Layers); n++ {
		o.find(have, n, func(ref string) (found bool) {
			have.derived[n], found = derivedLayerOf(ctx, repo, ref, have.commit)
			return found
		})
	}
}

// find looks for the ref that keeps the nth layer.
func (o *Opened) find(have *present, n int, keeps func(ref string) bool) {
	have.refs[n] = blobRef(o.Layers[n].Digest)
	if have.layers[n] = keeps(have.refs[n]); have.layers[n] {
		return
	}
	if ref := partRef(o.source.Layers[n]); ref != "" && keeps(ref) {
		have.refs[n], have.layers[n] = ref, true
	}
}

// checkSpace returns how many bytes must be fetched, and an error if the repository lacks room for the image and
// Besides. Objects take at least the compressed layers' space.
func (o *Opened) checkSpace(repo *ostree.Repo, have present) (need int64, err error) {
	for n, l := range o.Layers {
		if !have.layers[n] {
			need += max(l.Size, 0)
		}
	}
	room, err := repo.Room()
	if all := need + o.Besides; err == nil && all > room {
		more := ""
		if o.Besides > 0 {
			more = fmt.Sprintf(" (%s with the packages)", printable.Size(all, room))
		}
		err = fault.New(fault.CannotWrite, "the repository has room for %s, but the image needs more than its compressed size, %s%s", printable.Size(room, need), printable.Size(need, room), more).
			WithHint("free space on the repository's file system, for example with ostree admin cleanup, or install the machine on a larger disk")
	}
	return need, err
}
