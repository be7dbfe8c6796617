package rpmostree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"machine-pivot/internal/fault"
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
		err = e.Retry.Do(ctx, e.Waiting, b.try)
	}
	if err != nil {
		return fmt.Errorf("cannot rebase to %s: %w", r.Image.Reference, err)
	}
	return e.checkPrepared(ctx, r)
}

// imageRefs are the refs by which the repository knows the commit as an image.
func (b *rebase) imageRefs() ([]string, error) {
	repo, err := ostree.OpenRepo(b.engine.Sysroot.RepoPath())
	if err != nil {
		return nil, err
	}
	return repo.RefsTo("ostree/container/image", b.commit) // ostree-ext: container/store.rs
}

func (b *rebase) try(ctx context.Context) error {
	e := b.engine
	if err := e.idle(ctx); err != nil {
		return err
	}
	if b.complete() == nil {
		return nil // a try before did it, only its answer was lost
	}
	// What is staged would be what rpm-ostree starts from. Not by "rpm-ostree
	// cleanup": that also lets go of the image that was imported for this.
	if err := e.Discard(ctx); err != nil {
		return err
	}
	if !b.tool.since(2020, 4) { // the first with --lock-finalization here
		if err := e.touchLock(); err != nil {
			return err
		}
	}
	_, err := e.call(ctx, e.Limits.forRebase(), withTmp(e.Sysroot, e.Run), b.command()...)
	if err != nil {
		return b.despite(ctx, err)
	}
	return b.complete()
}

// command names the commit with a colon: without it rpm-ostree would prefix the
// remote of the present origin and drop the custom one.
func (b *rebase) command() []string {
	argv := []string{"rpm-ostree", "rebase"}
	if b.tool.since(2020, 4) {
		argv = append(argv, "--lock-finalization")
	}
	if b.tool.since(2021, 3) {
		argv = append(argv, "--bypass-driver")
	}
	if b.request.Image.Container == "" {
		argv = append(argv, "--custom-origin-url="+customURL(b.request.Image), "--custom-origin-description="+customDescription)
	}
	return append(argv, ":"+b.request.Commit)
}

// failedTrial is how rpm-ostree says that nothing runs in the new system
// (rpmostree-scripts.cxx). It tries that when the deployment is staged already.
const failedTrial = "Sanity-checking final rootfs"

// despite looks at what is staged after rpm-ostree has failed: after the daemon's
// work its client still lists the packages that change, and fails if it cannot.
func (b *rebase) despite(ctx context.Context, failure error) error {
	if ctx.Err() != nil || fault.KindOf(failure).Transient() || strings.Contains(failure.Error(), failedTrial) {
		return failure
	}
	// A client that was killed leaves the daemon at work.
	if err := b.engine.idle(ctx); fault.KindOf(err).Transient() {
		return fmt.Errorf("%w (after: %v)", err, failure)
	} else if err != nil || b.complete() != nil {
		return failure
	}
	b.engine.Note(fmt.Sprintf("the deployment is made, though rpm-ostree ended with a failure: %v", failure))
	return nil
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
