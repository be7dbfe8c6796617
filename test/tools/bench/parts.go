package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/test/tools/machinefiles"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

// The part of a benchmark with layers in the format zstd:chunked, of which only parts are fetched.
const partsPart = "parts"

// Its images.
const (
	formerImage      = "former"       // the tree of chunked, in chunks
	spreadImage      = "spread"       // the same after an update that changes files in all chunks
	spreadPlainImage = "spread plain" // the tree of spread without an ostree commit, in a layer for each component
)

// spreadEvery is the distance of the files that the update changes: 5 % of all, evenly over all layers.
const spreadEvery = 100 / updatePercent

// afterDeployment is the contender with a repository that has, at first, only the former commit as a deployment, like a
// machine at its first boot.
const afterDeployment = "pivot, first boot"

// inParts builds the images. The tree is the same afterwards.
func (b *builder) inParts(ctx context.Context, repo, tree string, files []machinefiles.File, before string) error {
	b.former = before
	if err := b.zstdChunked(ctx, formerImage, repo, before); err != nil {
		return err
	}
	changed, err := spreadChange(tree, files, 64)
	if err != nil {
		return err
	}
	b.tree.Spread = changed
	after, err := commit(repo, tree, "2")
	if err == nil {
		err = b.zstdChunked(ctx, spreadImage, repo, after)
	}
	if err == nil {
		b.spreadRoot, err = rootOf(repo, after)
	}
	if err == nil {
		err = b.spreadPlain(ctx, tree)
	}
	if err != nil {
		return err
	}
	_, err = spreadChange(tree, files, 0)
	return errors.Join(err, applyPolicy(tree))
}

// spreadChange changes the content of one of each spreadEvery files: that one with which the
// changed content is closest to 5 % of all content so far. It returns the total size of the changed
// files.
func spreadChange(tree string, files []machinefiles.File, by byte) (changed int64, err error) {
	var before int64
	for next := range slices.Chunk(layOut(files), spreadEvery) {
		for _, p := range next {
			before += p.Size
		}
		lacks := before*updatePercent/100 - changed
		p := slices.MinFunc(next, func(a, b placed) int {
			return cmp.Compare(max(lacks-a.Size, a.Size-lacks), max(lacks-b.Size, b.Size-lacks))
		})
		if err := p.CopyTo(filepath.Join(tree, p.name), byte(p.Again)+by); err != nil {
			return changed, err
		}
		changed += p.Size
	}
	return changed, nil
}

func (b *builder) zstdChunked(ctx context.Context, name, repo, commit string) error {
	return b.image(ctx, name, commit, func(dir oscontainer.Option) (v1.Image, error) {
		return oscontainer.Encapsulated(repo, commit, dir, oscontainer.WithChunking(components, componentLayer),
			oscontainer.WithCompression(oscontainer.ZstdChunkedDefault))
	})
}

func (b *builder) spreadPlain(ctx context.Context, tree string) error {
	entries, err := oscontainer.FromTree(tree)
	if err != nil {
		return err
	}
	return b.image(ctx, spreadPlainImage, "", func(dir oscontainer.Option) (v1.Image, error) {
		return oscontainer.Plain("2", append(oscontainer.Spread(entries, components), dir, oscontainer.WithCompression(oscontainer.ZstdChunkedDefault))...)
	})
}

// partContenders returns pivot with an update, and as at a first boot with either form of the image.
func (w *world) partContenders() []*contender {
	firstBoot := func(i image) *contender {
		s := ours(i)
		s.deployed = w.former
		return &contender{name: afterDeployment, steps: []step{s}}
	}
	return []*contender{
		pivot(ours(w.images[formerImage]), ours(w.images[spreadImage])),
		firstBoot(w.images[spreadImage]), firstBoot(w.images[spreadPlainImage]),
	}
}

// deploy puts a commit into the repository of a trial, with the ref of a deployment.
func (w *world) deploy(commit string) error {
	repo := "--repo=" + filepath.Join(w.trial(), repoDir)
	_, err := ostreetree.Ostree("pull-local", repo, w.archive(), commit)
	if err == nil {
		_, err = ostreetree.Ostree("refs", repo, "--create=ostree/0/1/0", commit)
	}
	if err != nil {
		return fmt.Errorf("cannot deploy the former commit: %w", err)
	}
	return nil
}

// partTargets are the targets for images of which only parts are fetched.
func (r *report) partTargets() []target {
	var targets []target
	peak := 0.0
	for _, c := range []struct{ contender, image, what string }{
		{"pivot", spreadImage, "an update"}, {afterDeployment, spreadImage, "a first boot"}, {afterDeployment, spreadPlainImage, "a first boot, plain"},
	} {
		s := r.find(c.contender, c.image)
		t := target{What: "bytes fetched where 5 % of the files have changed evenly: " + c.what, Bound: 0.08}
		if s.Wall > 0 {
			t.Value = ratio(s.Fetched, r.image(c.image).Bytes)
		}
		peak = max(peak, float64(s.Peak))
		targets = append(targets, t)
	}
	return append(targets, target{What: "peak memory in MB where parts are fetched", Bound: 96, Value: peak / 1e6})
}
