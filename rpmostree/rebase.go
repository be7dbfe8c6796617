package rpmostree

import (
	"context"
	"slices"

	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// rebase is one locked deployment that rpm-ostree makes of a commit in the repository.
//
// rpm-ostree is called with the commit, not with the image reference. With a reference, its daemon would contact the
// registry even if the image is complete in the repository, with its own pull secrets and proxy. So the image reference
// in the origin, and the image's refs, which rpm-ostree deletes because no origin names them, are restored afterwards.
type rebase struct {
	engine  *RpmOstree
	request pivot.Spec
	tool    tool
	commit  ostree.Checksum
	refs    []string // of the image, before the rebase
}

func (e *RpmOstree) newRebase(r pivot.Spec, t tool) (b *rebase, err error) {
	b = &rebase{engine: e, request: r, tool: t}
	if b.commit, err = ostree.ParseChecksum(r.Commit); err == nil {
		b.refs, err = b.imageRefs() // before rpm-ostree deletes them
	}
	return b, err
}

// imageRefs returns the refs of images that point to the commit.
func (b *rebase) imageRefs() ([]string, error) {
	repo, err := ostree.OpenRepo(b.engine.Sysroot.RepoPath())
	if err != nil {
		return nil, err
	}
	return repo.RefsTo("ostree/container/image", b.commit) // ostree-ext: container/store.rs
}

// before makes the booted deployment what rpm-ostree starts from. Its daemon takes only /etc from the booted
// deployment. Packages, overrides, initramfs and arguments come from the first one of the stateroot in boot order, a
// staged one first (rpmostree_syscore_get_origin_merge_deployment in rpmostree-sysroot-core.cxx). Another one is first
// before the reboot of a commit, or after a queued rollback. Then the booted one is staged once more, locked, and
// rpm-ostree replaces that.
//
// A staged deployment is not removed by "rpm-ostree cleanup", which also deletes the refs of the image that was just
// imported.
func (b *rebase) before(ctx context.Context) error {
	first, err := b.engine.bootedFirst()
	switch {
	case err != nil:
		return err
	case first:
		return b.engine.Ostree.Discard(ctx)
	}
	booted, err := b.engine.Sysroot.Booted()
	if err != nil {
		return err
	}
	again := pivot.Spec{Merge: b.request.Merge, Commit: booted.Checksum.String(), Kargs: b.request.Kargs}
	return b.engine.stage(ctx, again, booted)
}

// bootedFirst reports whether the booted deployment is the first one of its stateroot in the boot entries.
func (e *Ostree) bootedFirst() (bool, error) {
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return false, err
	}
	all, err := e.Sysroot.Deployments()
	i := slices.IndexFunc(all, func(d ostree.Deployment) bool { return d.Stateroot == booted.Stateroot })
	return i >= 0 && all[i].ID() == booted.ID(), err
}

// base returns the refspec. The commit has a colon as prefix: without it rpm-ostree would prefix the
// remote of the current origin and drop the custom origin.
func (b *rebase) base() string { return ":" + b.request.Commit }

// customOrigin returns what rpm-ostree shows in the place of the commit; nil for a container image.
func (b *rebase) customOrigin() *customOrigin {
	if b.request.Image.Native {
		return nil
	}
	return &customOrigin{URL: customURL(b.request.Image), Description: customDescription}
}

// command returns the command line.
func (b *rebase) command() []string {
	argv := append([]string{"rpm-ostree", "rebase"}, b.tool.lockOptions()...)
	if b.tool.since(2021, 3) {
		argv = append(argv, "--bypass-driver")
	}
	if o := b.customOrigin(); o != nil {
		argv = append(argv, "--custom-origin-url="+o.URL, "--custom-origin-description="+o.Description)
	}
	return append(argv, b.base())
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
	if err != nil || staged == nil || !b.request.Image.Native {
		return err
	}
	d, err := sysroot.Deployment(staged.Target)
	if err != nil || d.Origin.Commit() != b.request.Commit {
		return err
	}
	return renameImage(sysroot, d, b.request.Image.Container())
}
