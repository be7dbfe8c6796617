package rpmostree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// rebase is one deployment that rpm-ostree makes, locked, of a commit that is in
// the repository already.
//
// It is asked for the commit, not for the image: for an image its daemon asks the
// registry, also where all of it is there, with pull secrets and a proxy of its own.
// What it does not know of the image then is put right in what it staged: the
// origin's reference, and the refs of the image, which no origin named for it.
type rebase struct {
	engine  *RpmOstree
	request pivot.Request
	tool    tool
	commit  ostree.Checksum
	refs    []string // see imageRefs
}

func (e *RpmOstree) rebase(ctx context.Context, r pivot.Request, t tool) (err error) {
	b := rebase{engine: e, request: r, tool: t}
	if b.commit, err = ostree.ParseChecksum(r.Commit); err == nil {
		b.refs, err = b.imageRefs() // before rpm-ostree does anything
	}
	if err == nil {
		err = e.transact(ctx, transaction{argv: b.command(), before: b.before, complete: func(context.Context) error { return b.complete() }})
	}
	if err != nil {
		return fmt.Errorf("cannot rebase to %s: %w", r.Image.Reference, err)
	}
	return nil
}

// imageRefs are the refs by which the repository knows the commit as an image.
func (b *rebase) imageRefs() ([]string, error) {
	repo, err := ostree.OpenRepo(b.engine.Sysroot.RepoPath())
	if err != nil {
		return nil, err
	}
	return repo.RefsTo("ostree/container/image", b.commit) // ostree-ext: container/store.rs
}

// before removes what is staged: rpm-ostree would start from it. Not by "rpm-ostree
// cleanup": that also lets go of the image that was imported for this.
func (b *rebase) before(ctx context.Context) error {
	if err := b.engine.Ostree.Discard(ctx); err != nil {
		return err
	}
	return b.engine.lockByFile(b.tool)
}

// command names the commit with a colon: without it rpm-ostree would prefix the
// remote of the present origin and drop the custom one.
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

// complete adds what is missing of what rpm-ostree has staged, and holds it against the request.
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

// keepImage sets the image's refs again: rpm-ostree deletes those that no origin
// names at the end of each transaction (deploy.rs, remove_undeployed_images). The
// layers stay, since the deployed commit lists them.
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

// nameImage names the image in the staged deployment's origin, where rpm-ostree
// put the commit. libostree reads the origin anew when it finalizes, and
// rpm-ostree's daemon when the directory of the deployments has changed.
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
	dir, err := hostfiles.OpenWritable(sysroot.Physical(), filepath.Join(sysroot.Physical(), "ostree/deploy"))
	if err != nil {
		return err
	}
	defer dir.Close()
	deployments := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	name := filepath.Join(d.Stateroot, "deploy", filepath.Base(d.Path)+".origin")
	origin := d.Origin.WithContainer(b.request.Image.Container)
	if err := hostfiles.Replace(hostfiles.OS{}, filepath.Join(deployments, name), origin.Bytes(), 0o644); err != nil {
		return fmt.Errorf("cannot name the image in the deployment's origin: %w", err)
	}
	now := time.Now()
	if err := os.Chtimes(deployments, now, now); err != nil {
		return fmt.Errorf("cannot tell rpm-ostree of the deployment's origin: %w", err)
	}
	return nil
}
