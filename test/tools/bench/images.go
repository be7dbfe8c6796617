package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"machine-pivot/test/tools/machinefiles"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

// The images of a run.
const (
	legacyImage  = "legacy"  // machine-os-content: one layer with an archive repository
	chunkedImage = "chunked" // ostree-native, a layer for each component
	updatedImage = "updated" // the same after an update of the tree
	derivedImage = "derived" // the tree of chunked: a part in chunks, the rest in derived layers
	plainImage   = "plain"   // the tree of chunked without an ostree commit, in as many layers as tools make
)

// contentsImage is no image, but the contents of the legacy one, for a floor.
const contentsImage = "contents"

// plainLayers is the number of layers of the plain image.
const plainLayers = 300

// The parts of a benchmark. Both include the chunked image.
const (
	basePart    = "base"    // legacy and updated images
	derivedPart = "derived" // derived and plain images
)

// has reports whether to run a part.
func (s settings) has(part string) bool { return s.only == "" || s.only == part }

// inChunks reports whether to run what includes the chunked image.
func (s settings) inChunks() bool { return s.only != partsPart && s.only != rehearsalPart }

// builder builds the images of a run.
type builder struct {
	settings
	dir  string
	tree treeFacts

	// The path of an archive repository with the content of the legacy image.
	archive string

	root, listing string // of the tree before the update: see rootOf and list
	spreadRoot    string // of the tree of the spread image
	firstCommit   string // of the tree before any update
	former        string // the commit of the former image

	// take is called with each image as soon as it is built. The layers are removed afterwards.
	take func(name, commit string, img v1.Image) error
}

// build builds the tree and all images. Only the archive repository remains.
func (b *builder) build(ctx context.Context) error {
	tree, repo := filepath.Join(b.dir, "tree"), filepath.Join(b.dir, "repo")
	b.archive = filepath.Join(b.dir, "archive")
	b.say("picking %d files with %s from %s", b.files, megabytes(b.bytes), strings.Join(b.from, " and "))
	files := machinefiles.Pick(b.from, b.files, b.bytes, b.seed)
	if err := ostreetree.Init(repo, "bare"); err != nil {
		return err
	}
	if err := b.first(ctx, repo, tree, files); err != nil {
		return err
	}
	if b.has(partsPart) {
		if err := b.inParts(ctx, repo, tree, files, b.firstCommit); err != nil {
			return err
		}
	}
	if b.has(derivedPart) {
		if err := b.divided(ctx, repo, tree, files); err != nil {
			return err
		}
	}
	if b.has(basePart) {
		if err := b.update(ctx, repo, tree, files); err != nil {
			return err
		}
	}
	if b.has(rehearsalPart) {
		if err := b.rehearsed(ctx); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(tree), os.RemoveAll(repo))
}

func (b *builder) first(ctx context.Context, repo, tree string, files []machinefiles.File) (err error) {
	if b.tree, err = writeTree(tree, files); err != nil {
		return err
	}
	commit, err := commit(repo, tree, "1")
	if err != nil {
		return err
	}
	if b.root, err = rootOf(repo, commit); err != nil {
		return err
	}
	if b.listing, err = list(repo, commit); err != nil {
		return err
	}
	if err := b.makeArchive(repo, commit); err != nil {
		return err
	}
	if b.has(basePart) {
		if err := b.legacy(ctx, commit); err != nil {
			return err
		}
	}
	b.firstCommit = commit
	if !b.inChunks() {
		return nil
	}
	return b.chunked(ctx, chunkedImage, repo, commit)
}

func (b *builder) update(ctx context.Context, repo, tree string, files []machinefiles.File) (err error) {
	if b.tree.Changed, err = changeTree(tree, files); err != nil {
		return err
	}
	commit, err := commit(repo, tree, "2")
	if err != nil {
		return err
	}
	return b.chunked(ctx, updatedImage, repo, commit)
}

// componentLayer assigns an object to the layer of the component that its first path is in.
func componentLayer(_ string, paths []string) int { return componentOf(paths[0]) + 1 }

// makeArchive makes the repository for the legacy image and for the input of the floor.
func (b *builder) makeArchive(repo, commit string) error {
	if err := ostreetree.Init(b.archive, "archive"); err != nil {
		return err
	}
	_, err := ostreetree.Ostree("pull-local", "--repo="+b.archive, repo, commit)
	return err
}

func (b *builder) legacy(ctx context.Context, commit string) error {
	return b.image(ctx, legacyImage, commit, func(dir oscontainer.Option) (v1.Image, error) {
		return oscontainer.Legacy(b.archive, commit, "1", dir, oscontainer.WithLayers(1))
	})
}

// chunked builds an image in chunks, like the reference exporter with the data of a package
// manager: each component is in one layer.
func (b *builder) chunked(ctx context.Context, name, repo, commit string) error {
	return b.image(ctx, name, commit, func(dir oscontainer.Option) (v1.Image, error) {
		return oscontainer.Encapsulated(repo, commit, dir, oscontainer.WithChunking(components, componentLayer))
	})
}

// divided builds the images with ordinary layers, with the contents of the chunked image.
func (b *builder) divided(ctx context.Context, repo, tree string, files []machinefiles.File) error {
	entries, err := oscontainer.FromTree(tree)
	if err != nil {
		return err
	}
	err = b.image(ctx, plainImage, "", func(dir oscontainer.Option) (v1.Image, error) {
		return oscontainer.Plain("1", append(oscontainer.Spread(entries, plainLayers), dir)...)
	})
	if err != nil {
		return err
	}
	layers := map[string]int{} // by the names of the files in derived layers
	skip := filepath.Join(b.dir, "skip")
	var names strings.Builder
	for _, p := range layOut(files) {
		if p.derived {
			layers[p.name] = derivedLayer(p.component)
			fmt.Fprintf(&names, "/%s\n", p.name)
		}
	}
	if err := os.WriteFile(skip, []byte(names.String()), 0o600); err != nil {
		return err
	}
	base, err := commit(repo, tree, "1", "--skip-list="+skip)
	if err != nil {
		return err
	}
	derived := oscontainer.Divide(entries, derivedLayers, func(name string) (int, bool) {
		layer, ok := layers[name]
		return layer, ok
	})
	return b.image(ctx, derivedImage, "", func(dir oscontainer.Option) (v1.Image, error) {
		return oscontainer.Encapsulated(repo, base, append(derived, dir, oscontainer.WithChunking(components, componentLayer))...)
	})
}

func (b *builder) image(ctx context.Context, name, commit string, build func(dir oscontainer.Option) (v1.Image, error)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.say("building the %s image", name)
	dir := filepath.Join(b.dir, "layers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	img, err := build(oscontainer.WithWorkDir(dir))
	if err == nil {
		err = b.take(name, commit, img)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// keepImages builds the images and writes each into a directory of its own.
func (s settings) keepImages(ctx context.Context, dir string) (err error) {
	b := builder{settings: s}
	if b.dir, err = os.MkdirTemp(s.dir, "pivot-bench-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.take = func(name, _ string, img v1.Image) error {
		path, err := layout.Write(filepath.Join(dir, name), empty.Index)
		if err != nil {
			return err
		}
		if err := path.AppendImage(img); err != nil {
			return fmt.Errorf("cannot keep the %s image: %w", name, err)
		}
		s.say("oci:%s", filepath.Join(dir, name))
		return nil
	}
	return b.build(ctx)
}
