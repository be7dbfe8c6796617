package rpmostree

import (
	"context"
	"fmt"

	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// rebase is one locked deployment that rpm-ostree makes of a commit in the repository.
//
// rpm-ostree is called with the commit, not with the image reference: with a reference, its
// daemon would contact the registry even if the image is complete in the repository, with its own
// pull secrets and proxy. So the image reference in the origin, and the image's refs, which
// rpm-ostree deletes because no origin names them, are restored afterwards.
type rebase struct {
	engine  *RpmOstree
	request pivot.Request
	tool    tool
	commit  ostree.Checksum
	refs    []string // of the image, before the rebase
}

func (e *RpmOstree) rebase(ctx context.Context, r pivot.Request, t tool) (err error) {
	b := rebase{engine: e, request: r, tool: t}
	if b.commit, err = ostree.ParseChecksum(r.Commit); err == nil {
		b.refs, err = b.imageRefs() // before rpm-ostree deletes them
	}
	if err == nil {
		err = e.transact(ctx, transaction{argv: b.command(), before: b.before, complete: func(context.Context) error { return b.complete() }})
	}
	if err != nil {
		return fmt.Errorf("cannot rebase to %s: %w", r.Image.Reference, err)
	}
	return nil
}

// imageRefs returns the refs of images that point to the commit.
func (b *rebase) imageRefs() ([]string, error) {
	repo, err := ostree.OpenRepo(b.engine.Sysroot.RepoPath())
	if err != nil {
		return nil, err
	}
	return repo.RefsTo("ostree/container/image", b.commit) // ostree-ext: container/store.rs
}

// before removes a staged deployment, since rpm-ostree would start from it. It does not use
// "rpm-ostree cleanup", which also deletes the refs of the image that was just imported.
func (b *rebase) before(ctx context.Context) error {
	if err := b.engine.Ostree.Discard(ctx); err != nil {
		return err
	}
	return b.engine.lockByFile(b.tool)
}

// command returns the command line. The commit has a colon as prefix: without it rpm-ostree would
// prefix the remote of the current origin and drop the custom origin.
func (b *rebase) command() []string {
	argv := append([]string{"rpm-ostree", "rebase"}, b.tool.lockOptions()...)
	if b.tool.since(2021, 3) {
		argv = append(argv, "--bypass-driver")
	}
	if b.request.Image.Container == "" {
		argv = append(argv, "--custom-origin-url="+customURL(b.request.Image), "--custom-origin-description="+customDescription)
	}
	return append(argv, ":"+b.request.Commit)
}

// complete restores what rpm-ostree leaves out, and checks the staged deployment against the
// request.
func (b *rebase) complete() error {
	if err := b.keepImage(); err != nil {
		return err
	}
	if err := b.nameImage(); err != nil {
		return err
	}
	_, err := b.engine.checkStaged(b.request)
	return err
}

// keepImage restores the image's refs: at the end of each transaction rpm-ostree deletes the refs
// of images that no origin names (deploy.rs, remove_undeployed_images). The layers stay, since
// the deployed commit lists them.
func (b *rebase) keepImage() error {
	have, err := b.imageRefs()
	if err != nil || len(have) == len(b.refs) {
		return err
	}
	repo, view, err := host.OpenRepo(b.engine.Sysroot)
	if err != nil {
		return err
	}
	defer view.Close()
	return repo.SetRefs(b.commit, b.refs...)
}

// nameImage replaces the commit in the staged deployment's origin by the image reference.
// libostree rereads the origin when it finalizes the deployment.
func (b *rebase) nameImage() error {
	sysroot := b.engine.Sysroot
	staged, err := sysroot.Staged()
	if err != nil || staged == nil || b.request.Image.Container == "" {
		return err
	}
	d, err := sysroot.Deployment(staged.Target)
	if err != nil || d.Origin.Commit() != b.request.Commit {
		return err
	}
	return renameImage(sysroot, d, b.request.Image.Container)
}
