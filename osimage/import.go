package osimage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"machine-pivot/fault"
	"machine-pivot/osimage/layer"
	"machine-pivot/osimage/source"
	"machine-pivot/ostree"
)

// Result is what an import did. Its JSON form is that of `pivot image import`.
type Result struct {
	Format  Format `json:"format"`
	Commit  string `json:"commit"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Objects struct {
		Total int `json:"total"` // read from the image; 0 if the commit was there already
		New   int `json:"new"`   // that the repository lacked
	} `json:"objects"`
	Bytes struct {
		Fetched int64 `json:"fetched"`
		Written int64 `json:"written"`
	} `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// KeepAliveRef is the ref that keeps an imported commit from being pruned until
// a deployment does.
func KeepAliveRef(commit string) string { return "pivot/" + commit }

// Import brings an image's commit into a repository. Either the whole commit is
// there afterwards, each object verified, on disk and kept alive by a ref, or
// nothing that anything refers to, but for whole layers of an ostree-native image
// and what the next import of this boot can go on with. The image is read by its
// digest; its policy is checked again.
func (p *Puller) Import(ctx context.Context, image Image, repo *ostree.Repo) (Result, error) {
	result, err := p.importImage(ctx, image, repo)
	if err != nil {
		return Result{}, fmt.Errorf("cannot import image %s: %w", image.Reference, err)
	}
	return result, nil
}

// importer is one import.
type importer struct {
	image    Image
	source   *source.Image // what image is read from
	repo     *ostree.Repo
	target   *ostree.Import
	progress *meter
	buffers  layer.Buffers
	result   Result
}

func (p *Puller) importImage(ctx context.Context, resolved Image, repo *ostree.Repo) (_ Result, err error) {
	start := time.Now()
	opened, err := p.host().Open(ctx, resolved.Reference.Pinned(resolved.Digest))
	if err != nil {
		return Result{}, err
	}
	defer opened.Close()
	image := describe(opened, resolved.asked)
	if err := importable(image); err != nil {
		return Result{}, err
	}
	target, err := repo.BeginImport(ctx)
	if err != nil {
		return Result{}, writing(err)
	}
	defer func() { err = errors.Join(err, end(ctx, target, err)) }()
	i := &importer{
		image: image, source: opened, repo: repo, target: target, buffers: layer.NewBuffers(),
		progress: &meter{report: p.Progress, objects: func() int { return target.Stats().ObjectsTotal }},
		result:   Result{Format: image.Format, Digest: image.Digest, Version: image.Version},
	}
	if err := i.run(ctx); err != nil {
		return Result{}, image.from(err)
	}
	i.result.Seconds = time.Since(start).Seconds()
	return i.result, nil
}

// importable refuses the format that is not implemented.
func importable(image Image) error {
	if image.Format != Layered {
		return nil
	}
	return fault.New(fault.Refused, "it is a layered ostree-native container (%d layers, not all of them ostree's), which cannot be imported yet", len(image.Layers)).
		WithHint("rebase to it with rpm-ostree or bootc, which merge such layers, or use the image that it was built from")
}

// end closes an import. What is whole of it is kept for the next try, if trying
// again can help.
func end(ctx context.Context, target *ostree.Import, err error) error {
	if err != nil && (ctx.Err() != nil || fault.KindOf(err).Transient()) {
		return target.Close()
	}
	return target.Discard()
}

func (i *importer) run(ctx context.Context) error {
	if i.image.Format == Encapsulated {
		return i.native(ctx)
	}
	if commit, err := ostree.ParseChecksum(i.image.Commit); err == nil && i.present(ctx, commit) {
		return i.finish(ctx, commit)
	}
	return i.legacy(ctx)
}

// legacy imports what is at /srv/repo in any of the layers.
func (i *importer) legacy(ctx context.Context) error {
	found := make([]*layer.Legacy, len(i.source.Layers))
	err := i.layers(ctx, nil, func(n int) layer.Content {
		found[n] = layer.NewLegacy(i.target)
		return found[n]
	}, nil)
	if err != nil {
		return err
	}
	commit, err := layer.LegacyCommit(i.image.Commit, found)
	if err != nil {
		return err
	}
	return i.finish(ctx, commit)
}

// present reports whether the repository has a whole commit already.
func (i *importer) present(ctx context.Context, commit ostree.Checksum) bool {
	have, err := i.repo.Has(ostree.ObjectName{Checksum: commit, Type: ostree.Commit})
	return have && err == nil && !i.repo.HasPartial(commit) && i.target.Finish(ctx, ostree.Root{Commit: commit}) == nil
}

// finish makes the commit part of the repository and fills in the result.
func (i *importer) finish(ctx context.Context, commit ostree.Checksum, refs ...string) error {
	root := ostree.Root{Commit: commit, Refs: append(refs, KeepAliveRef(commit.String()))}
	if err := i.target.Finish(ctx, root); err != nil {
		return writing(err)
	}
	stats := i.target.Stats()
	i.result.Commit = commit.String()
	i.result.Objects.Total, i.result.Objects.New = stats.ObjectsTotal, stats.ObjectsNew
	i.result.Bytes.Fetched, i.result.Bytes.Written = i.progress.finish(), stats.BytesWritten
	if i.result.Version == "" {
		info, err := i.repo.LoadCommit(commit)
		if err != nil {
			return err
		}
		i.result.Version = info.Version()
	}
	return nil
}
