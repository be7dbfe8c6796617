package osimage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/osimage/source"
	"machine-pivot/internal/ostree"
)

// native imports an ostree-native container as ostree-ext does (crates/ostree-ext/src/container/store.rs). A ref for
// each layer keeps the layer's objects. The ref of the first layer points to the encapsulated commit, that of any other
// layer to a commit that lists the layer's objects. The merge commit is the one that is deployed: it has the
// encapsulated commit's tree with the derived layers on top, and names the image in its metadata.
//
// The ref of a layer is set as soon as the layer is complete, so that an interrupted import
// resumes where it stopped, even after a power cut.
func (i *importer) native(ctx context.Context, have present) error {
	base := baseCommit{commit: have.commit}
	finish := newFinisher(ctx, i.target, len(have.layers))
	read := make([]*layer.Native, len(have.layers))
	derived := make([]*layer.Derived, len(have.layers))
	i.guessLabels()
	start := func(n int) layer.Content {
		if n >= i.baseLayers() {
			derived[n] = layer.NewDerived(i.target, i.guessLabel)
			return derived[n]
		}
		read[n] = layer.NewNative(i.target, n == 0)
		return read[n]
	}
	done := func(ctx context.Context, n int) error {
		if n == 0 && read[n] != nil {
			base.set(read[n].Commit)
			return i.early(&base)
		}
		kept, made, err := i.keep(ctx, read[n], derived[n])
		if err == nil && made {
			finish.roots <- ostree.Root{Commit: kept, Refs: []string{have.refs[n]}}
		}
		read[n] = nil // frees its long list of files
		if err != nil {
			return writing(err)
		}
		return i.early(&base)
	}
	err := i.layers(finish.ctx, have, start, done)
	if failed := finish.wait(); failed != nil {
		return writing(failed)
	}
	if err != nil {
		return err
	}
	tree, err := i.finishBase(ctx, base.commit, have)
	if _, lacks := errors.AsType[*ostree.CorruptError](err); lacks && slices.ContainsFunc(have.refs[:i.baseLayers()], isPartRef) {
		return i.wholeBase(ctx, err)
	}
	if err != nil {
		return err
	}
	return i.merge(ctx, base.commit, tree, have, derived)
}

// keep makes a commit that keeps a layer's objects. made is false if that must wait until the
// layers are merged.
func (i *importer) keep(ctx context.Context, base *layer.Native, derived *layer.Derived) (commit ostree.Checksum, made bool, err error) {
	if derived != nil {
		return i.commitEarly(ctx, derived.Layer)
	}
	commit, err = i.target.AddObjectSet(ctx, base.Files)
	return commit, err == nil, err
}

// wholeBase repeats an import with a commit that lacks an object, although its layers are complete. Perhaps the tables
// of those that were read by parts list less than these layers have. They are now fetched whole.
func (i *importer) wholeBase(ctx context.Context, lacks error) error {
	i.log("layers are fetched whole, although the machine has parts of them: " + lacks.Error())
	i.parts = nil
	have := i.present(ctx, i.repo)
	for n, l := range i.Layers {
		if n < i.baseLayers() && isPartRef(have.refs[n]) {
			have.layers[n], have.refs[n] = false, blobRef(l.Digest)
		}
		if !have.layers[n] {
			i.progress.expectMore(l.Size)
		}
	}
	return i.native(ctx, have)
}

// finishBase publishes the encapsulated commit; a plain image has none.
func (i *importer) finishBase(ctx context.Context, base ostree.Checksum, have present) (*ostree.CommitInfo, error) {
	if i.baseLayers() == 0 {
		return nil, nil
	}
	first := ostree.Root{Commit: base, Refs: []string{have.refs[0]}}
	if err := i.target.Finish(ctx, first); err != nil {
		return nil, writing(err)
	}
	return i.repo.LoadCommit(base)
}

// merge makes the commit that is deployed and finishes the import.
func (i *importer) merge(ctx context.Context, base ostree.Checksum, info *ostree.CommitInfo, have present, derived []*layer.Derived) error {
	var otherwise time.Time
	if info != nil {
		otherwise = info.Timestamp
	}
	commit, err := mergeCommit(ctx, i.source, otherwise)
	if err != nil {
		return err
	}
	commit.Parent = base
	layers, err := i.mergeLayers(ctx, info, have, derived, &commit)
	if err != nil {
		return err
	}
	merged, err := i.target.AddCommit(ctx, commit)
	if err != nil {
		return writing(err)
	}
	if slices.ContainsFunc(have.refs, isPartRef) { // other programs would find the image, and not all of its layers
		return i.finish(ctx, layers, merged)
	}
	return i.finish(ctx, layers, merged, imageRef(i.requested))
}

// mergeCommit returns the merge commit without its tree. It has the manifest and config in
// OCI format, by which rpm-ostree and bootc recognize the image, and the image's build time,
// or otherwise if that is unknown.
func mergeCommit(ctx context.Context, image *source.Image, otherwise time.Time) (ostree.NewCommit, error) {
	manifest, config, err := image.OCI(ctx)
	if err != nil {
		return ostree.NewCommit{}, err
	}
	return ostree.NewCommit{
		Metadata: [][2]string{
			{ostree.ManifestKey, cmp.Or(image.Instance, image.Digest)},
			{manifestKey, string(manifest)},
			{configKey, string(config)},
			{importerKey, importerName},
		},
		Timestamp: created(manifest, config, otherwise),
	}, nil
}

// The metadata keys of manifest and config in a merge commit.
const (
	manifestKey = "ostree.manifest"
	configKey   = "ostree.container.image-config"
)

// importerName is the name of this program in the commits that it makes.
const importerName = "pivot"

// created returns the time at which the image was built: from an annotation of the manifest,
// or from the config. It returns otherwise if neither has it.
func created(rawManifest, rawConfig []byte, otherwise time.Time) time.Time {
	var m imgspec.Manifest
	if json.Unmarshal(rawManifest, &m) == nil {
		if t, err := time.Parse(time.RFC3339, m.Annotations[imgspec.AnnotationCreated]); err == nil {
			return t
		}
	}
	var config imgspec.Image
	if json.Unmarshal(rawConfig, &config) == nil && config.Created != nil {
		return *config.Created
	}
	return otherwise
}

// finisher publishes layers in the background. Layers that are completed during a sync are
// then synced together.
type finisher struct {
	ctx   context.Context // cancelled when finishing fails
	fail  context.CancelCauseFunc
	roots chan ostree.Root // has room for all layers, so that sending never blocks
	ended <-chan error
}

func newFinisher(ctx context.Context, target *ostree.Import, most int) *finisher {
	ctx, fail := context.WithCancelCause(ctx)
	f := &finisher{ctx: ctx, fail: fail, roots: make(chan ostree.Root, most)}
	f.ended = guard.Start(func() error {
		err := guard.Call(func() error { return f.run(target) })
		if err != nil {
			f.fail(err)
		}
		return err
	})
	return f
}

func (f *finisher) run(target *ostree.Import) error {
	for root := range f.roots {
		if err := target.Finish(f.ctx, f.gather(root)...); err != nil {
			return err
		}
	}
	return nil
}

// gather returns first and all roots that are waiting in the channel.
func (f *finisher) gather(first ostree.Root) []ostree.Root {
	roots := []ostree.Root{first}
	for {
		select {
		case root, ok := <-f.roots:
			if !ok {
				return roots
			}
			roots = append(roots, root)
		default:
			return roots
		}
	}
}

// wait waits until all roots are published, and stops the finisher.
func (f *finisher) wait() error {
	close(f.roots)
	err := <-f.ended
	f.fail(nil)
	return err
}
