package osimage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"machine-pivot/fault"
	"machine-pivot/ostree"
)

// Result is what an import did. Its JSON form is that of `pivot image import`.
type Result struct {
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
// nothing that anything refers to. The image is read by its digest; its policy
// is checked again.
func (p *Puller) Import(ctx context.Context, image Image, repo *ostree.Repo) (Result, error) {
	result, err := p.importImage(ctx, image.Reference.Pinned(image.Digest), repo)
	if err != nil {
		return Result{}, fmt.Errorf("cannot import image %s: %w", image.Reference, err)
	}
	return result, nil
}

func (p *Puller) importImage(ctx context.Context, ref Reference, repo *ostree.Repo) (Result, error) {
	start := time.Now()
	image, err := p.open(ctx, ref)
	if err != nil {
		return Result{}, err
	}
	defer image.Close()
	if err := importable(image.Format); err != nil {
		return Result{}, err
	}
	target, err := repo.BeginImport(ctx)
	if err != nil {
		return Result{}, image.judge.writing(err)
	}
	result := Result{Digest: image.Digest, Version: image.Version}
	if commit, ok := present(image, repo); ok && target.Finish(ctx, commit, KeepAliveRef(commit.String())) == nil {
		result.Commit = commit.String()
	} else {
		err = p.importLegacy(ctx, image, target, &result)
	}
	if err := errors.Join(err, target.Close()); err != nil {
		return Result{}, err
	}
	if result.Version == "" {
		result.Version = commitVersion(repo, result.Commit)
	}
	result.Seconds = time.Since(start).Seconds()
	return result, nil
}

// commitVersion is the version that the commit itself names, or "".
func commitVersion(repo *ostree.Repo, commit string) string {
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return ""
	}
	info, err := repo.LoadCommit(c)
	if err != nil {
		return ""
	}
	return info.Version()
}

// importable refuses the formats that are not implemented.
func importable(format Format) error {
	switch format {
	case Legacy, Unknown:
		return nil
	}
	return fault.New(fault.Refused, "it is an ostree-native container (%s), which cannot be imported yet", format).
		WithHint("use rpm-ostree rebase ostree-unverified-registry:…, or a legacy image (machine-os-content)")
}

// present reports whether the repository seems to have the image's commit. It
// does if an import to which nothing is added can be finished: that checks for
// everything the commit is made of.
func present(image *opened, repo *ostree.Repo) (ostree.Checksum, bool) {
	commit, err := ostree.ParseChecksum(image.Commit)
	if err != nil || repo.HasPartial(commit) {
		return commit, false
	}
	have, err := repo.Has(ostree.ObjectName{Checksum: commit, Type: ostree.Commit})
	return commit, have && err == nil
}

// importLegacy imports what is at /srv/repo in any of the layers.
func (p *Puller) importLegacy(ctx context.Context, image *opened, target *ostree.Import, result *Result) error {
	progress := &meter{
		total: image.Bytes, report: p.Progress,
		objects: func() int { return target.Stats().ObjectsTotal },
	}
	content := &repoTar{sink: target, heads: map[string]string{}}
	for n := range image.blobs {
		if err := p.readLayer(ctx, image, n, content, progress); err != nil {
			return image.label(n, err)
		}
	}
	commit, err := content.commit(image)
	if err != nil {
		return err
	}
	if err := target.Finish(ctx, commit, KeepAliveRef(commit.String())); err != nil {
		return image.judge.writing(err)
	}
	progress.tell(true)
	stats := target.Stats()
	result.Commit = commit.String()
	result.Objects.Total, result.Objects.New = stats.ObjectsTotal, stats.ObjectsNew
	result.Bytes.Fetched, result.Bytes.Written = progress.fetched.Load(), stats.BytesWritten
	return nil
}

// readLayer reads one layer to its end and verifies it.
func (p *Puller) readLayer(ctx context.Context, image *opened, n int, content *repoTar, progress *meter) error {
	ctx, watch := newWatch(ctx, p.patience())
	defer watch.stop()
	layer, err := image.openLayer(ctx, n, watch, progress.add)
	if err != nil {
		return err
	}
	defer layer.close()
	if err := content.read(ctx, &layer.plain); err != nil {
		return image.contentError(ctx, layer, err)
	}
	return image.verify(ctx, n, layer)
}

// contentError explains why a layer's content could not be taken: the layer
// could not be read, the repository failed, or the tar stream or an object is wrong.
func (o *opened) contentError(ctx context.Context, l *layerReader, err error) error {
	if l.plain.failed != nil {
		return o.sourceError(ctx, l, l.plain.failed)
	}
	if _, ok := errors.AsType[sinkError](err); ok {
		return o.judge.writing(err)
	}
	return o.sourceError(ctx, l, err)
}

// commit is the commit that the image is about.
func (r *repoTar) commit(image *opened) (ostree.Checksum, error) {
	text, from := image.Commit, "its label "+labelLegacyCommit
	if text == "" {
		name, err := r.onlyHead()
		if err != nil {
			return ostree.Checksum{}, err
		}
		text, from = r.heads[name], "its ref "+name
	}
	if !r.found {
		return ostree.Checksum{}, fault.New(fault.BadInput, "it carries no ostree objects (nothing in /%s)", objectsDir)
	}
	commit, err := ostree.ParseChecksum(text)
	if err != nil {
		return ostree.Checksum{}, fault.New(fault.BadInput, "%s names no commit: %w", from, err)
	}
	return commit, nil
}

// onlyHead is the one ref of the repository.
func (r *repoTar) onlyHead() (string, error) {
	names := slices.Sorted(maps.Keys(r.heads))
	switch {
	case !r.found && len(names) == 0:
		return "", fault.New(fault.BadInput, "it carries no ostree commit (no label %s, no /srv/repo)", labelLegacyCommit)
	case len(names) == 0:
		return "", fault.New(fault.BadInput, "no refs found in its /srv/repo, and it has no label %s", labelLegacyCommit)
	case len(names) > 1:
		return "", fault.New(fault.BadInput, "multiple refs found in its /srv/repo (%s), and it has no label %s",
			strings.Join(names, ", "), labelLegacyCommit)
	}
	return names[0], nil
}
