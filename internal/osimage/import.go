package osimage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/sepolicy"
	"machine-pivot/kargs"
)

// Result is the result of an import. Its JSON form is that of `pivot image import`.
type Result struct {
	Format  Format `json:"format"`
	Commit  string `json:"commit"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Objects struct {
		Total int `json:"total"` // read from the image; 0 if the repository had the commit already
		New   int `json:"new"`   // that the repository did not have
	} `json:"objects"`
	Bytes struct {
		Fetched int64 `json:"fetched"`
		Written int64 `json:"written"`
	} `json:"bytes"`
	// KernelArguments are the image's own (package kargsd), for this machine's architecture.
	KernelArguments kargs.Line `json:"kernelArguments,omitempty"`
	// BoundImages are the application images that the image binds (package bound).
	BoundImages []string `json:"boundImages,omitempty"`
	Notes       []string `json:"notes,omitempty"` // for people: which parts of derived layers a host does not get
	// Composefs reports that the system boots only if ostree makes a composefs image in its
	// deployment.
	Composefs bool    `json:"composefs,omitempty"`
	Seconds   float64 `json:"seconds"`
}

// KeepAliveRef returns the ref that protects an imported commit from pruning until it is
// deployed.
func KeepAliveRef(commit string) string { return "pivot/" + commit }

// Check returns an error if Import would fail because of the image's platform or format, for
// lack of space, or for lack of fs-verity where the repository requires it. It writes nothing. need is the
// compressed size of what the import will fetch, in bytes.
func (o *Opened) Check(ctx context.Context, repo *ostree.Repo) (need int64, err error) {
	return need, o.importError(guard.Call(func() (err error) {
		if err := o.importable(); err != nil {
			return err
		}
		if _, err := repo.GivesVerity(); err != nil {
			return writing(err)
		}
		need, err = o.checkSpace(repo, o.present(ctx, repo))
		return err
	}))
}

// Import writes the image's commit into a repository. If it succeeds, the commit is complete, each of its objects is
// verified and durable, and a ref protects it from pruning. If it fails, no ref points to anything incomplete. Complete
// layers of an ostree-native image are kept, and so are objects with which a later import in the same boot can resume.
// report may be nil; it is called by one goroutine at a time.
func (o *Opened) Import(ctx context.Context, repo *ostree.Repo, report func(Progress)) (Result, error) {
	var result Result
	err := guard.Call(func() (err error) {
		result, err = o.importInto(ctx, repo, report)
		return err
	})
	return result, o.importError(err)
}

// importError adds the image's name to an error.
func (o *Opened) importError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot import image %s: %w", o.Reference, err)
}

// importer is one import.
type importer struct {
	layerReader
	repo   *ostree.Repo
	target *ostree.Import
	guess  *sepolicy.Contexts // the policy for guessing labels in derived layers; nil: no guesses
	binds  binding
	result Result
}

func (o *Opened) importInto(ctx context.Context, repo *ostree.Repo, report func(Progress)) (_ Result, err error) {
	start := time.Now()
	if err := o.importable(); err != nil {
		return Result{}, err
	}
	target, err := repo.BeginImport(ctx)
	if err != nil {
		return Result{}, writing(err)
	}
	defer func() { err = errors.Join(err, end(ctx, target, err)) }()
	i := &importer{
		layerReader: layerReader{Opened: o, progress: &meter{report: report, objects: func() int { return target.Stats().ObjectsTotal }}},
		repo:        repo, target: target,
		result: Result{Format: o.Format, Digest: o.Digest, Version: o.Version},
	}
	if err := i.run(ctx); err != nil {
		return Result{}, err
	}
	i.result.Seconds = time.Since(start).Seconds()
	return i.result, nil
}

// Refusal returns the reason why the image cannot be imported for the puller's platform, as
// far as manifest and config show, or nil if they show none.
func (o *Opened) Refusal() error { return o.importable() }

// importable returns an error for an image for another platform, and for one with a label that names a layer that it
// does not have.
func (o *Opened) importable() error {
	if err := o.machine.checkRuns(o.stated); err != nil {
		return err
	}
	if o.Format == Layered && o.Derived == len(o.Layers) {
		return imagefault.Misbuilt("its label %s names a layer that it does not have", labelFinalDiffID)
	}
	return nil
}

// end closes an import. After a failure that a retry may cure, it keeps the complete objects
// for that retry.
func end(ctx context.Context, target *ostree.Import, err error) error {
	if err != nil && (ctx.Err() != nil || fault.KindOf(err).Transient()) {
		return target.Close()
	}
	return target.Discard()
}

func (i *importer) run(ctx context.Context) error {
	have := i.present(ctx, i.repo)
	bytes, err := i.checkSpace(i.repo, have)
	if err != nil {
		return err
	}
	i.progress.expect(bytes)
	switch {
	case i.Format.Native():
		i.parts = i.newPartReader(have)
		return i.native(ctx, have)
	case have.all():
		return i.finish(ctx, nil, have.commit)
	}
	return i.legacy(ctx, have)
}

// legacy imports the archive repository at /srv/repo, which may be spread over all layers.
func (i *importer) legacy(ctx context.Context, have present) error {
	found := make([]*layer.Legacy, len(have.layers))
	err := i.layers(ctx, have, func(n int) layer.Content {
		found[n] = layer.NewLegacy(i.target)
		return found[n]
	}, nil)
	if err != nil {
		return err
	}
	commit, err := layer.LegacyCommit(i.Commit, found)
	if err != nil {
		return err
	}
	return i.finish(ctx, nil, commit)
}

// finish publishes the commit with its refs, together with other commits, and fills in the
// result.
func (i *importer) finish(ctx context.Context, others []ostree.Root, commit ostree.Checksum, refs ...string) error {
	if _, err := i.accept(commit); err != nil { // undecided means that an object is missing; Finish reports which
		return err
	}
	if _, err := i.bootable(commit); err != nil {
		return err
	}
	if _, err := i.bind(commit); err != nil {
		return err
	}
	root := ostree.Root{Commit: commit, Refs: append(refs, KeepAliveRef(commit.String()))}
	if err := i.target.Finish(ctx, append(others, root)...); err != nil {
		return writing(err)
	}
	stats := i.target.Stats()
	i.reportReplaced(stats.Replaced)
	i.result.Commit = commit.String()
	i.result.Objects.Total, i.result.Objects.New = stats.ObjectsTotal, stats.ObjectsNew
	i.result.Bytes.Fetched, i.result.Bytes.Written = i.progress.finish(), stats.BytesWritten
	own, err := ReadKargs(i.repo, commit, i.machine.architecture)
	if err != nil {
		return err
	}
	i.result.KernelArguments = own.Line
	i.reportBound()
	if i.result.Version == "" {
		info, err := i.repo.LoadCommit(commit)
		if err != nil {
			return err
		}
		i.result.Version = info.Version()
	}
	return nil
}

// reportReplaced logs which objects of the repository were wrong. Nothing is wrong any more with the commit, but
// deployments have these files by links, and what has damaged them is not known.
func (i *importer) reportReplaced(wrong []ostree.ObjectName) {
	if len(wrong) > 0 {
		i.log(fmt.Sprintf("warning: this machine's repository had damaged objects (%d), such as %s: they are replaced, but a deployment that has them keeps them. Look at the disk", len(wrong), wrong[0]))
	}
}
