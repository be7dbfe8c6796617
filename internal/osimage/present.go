package osimage

import (
	"context"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
)

// present is what a repository has of an image.
type present struct {
	commit  ostree.Checksum   // what the image carries, if its layer is there
	layers  []bool            // those that need not be fetched: all that is in them is there
	derived []ostree.Checksum // the commits of derived layers that are there
}

func (p present) all() bool { return !slices.Contains(p.layers, false) }

// missing is how many layers have to be fetched.
func (p present) missing() (n int) {
	for _, there := range p.layers {
		if !there {
			n++
		}
	}
	return n
}

// present looks for what need not be fetched.
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

// baseLayers is how many layers the encapsulated commit has.
func (o *Opened) baseLayers() int { return len(o.Layers) - o.Derived }

// nativePresent goes by the layers' refs, and by what is there of their objects.
func (o *Opened) nativePresent(ctx context.Context, repo *ostree.Repo, have *present) {
	have.derived = make([]ostree.Checksum, len(o.Layers))
	for n := o.baseLayers(); n < len(o.Layers); n++ {
		commit, err := repo.ResolveRef(o.layerRef(n))
		if err == nil && repo.HasWhole(ctx, commit) == nil {
			have.layers[n], have.derived[n] = true, commit
		}
	}
	others := true
	for n := o.baseLayers() - 1; n >= 0; n-- {
		commit, err := repo.ResolveRef(o.layerRef(n))
		switch {
		case err != nil:
		case n == 0:
			// Its objects are those of the whole commit, less the other layers'.
			have.commit, have.layers[n] = commit, others && repo.HasWhole(ctx, commit) == nil
		default:
			have.layers[n] = repo.HasObjectSet(commit) == nil
		}
		others = others && have.layers[n]
	}
}

// reckon adds up what is to be fetched, in bytes, and refuses what cannot fit:
// objects take at least the room that they have in compressed layers.
func (o *Opened) reckon(repo *ostree.Repo, have present) (need int64, err error) {
	for n, l := range o.Layers {
		if !have.layers[n] {
			need += max(l.Size, 0)
		}
	}
	room, err := repo.Room()
	if err == nil && need > room {
		err = fault.New(fault.CannotWrite, "the repository has room for %d bytes, but the image's %d compressed ones need more", room, need).
			WithHint("free space on the repository's file system, for example with ostree admin cleanup, or install the machine on a larger disk")
	}
	return need, err
}
