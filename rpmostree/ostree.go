// Package rpmostree has the engines, which make deployments with the tools of the host: Ostree
// uses only libostree's command line, and RpmOstree is for hosts that are managed by rpm-ostree.
// Both prepare a locked staged deployment and make it the next boot in the same way (commit.go).
// Direct makes a deployment in the initramfs, and Rollback returns to an existing one.
//
// Checkouts, boot entries and the merge of /etc are left to libostree.
package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// Run runs a program of the host and returns its stdout. The error includes its stderr.
type Run = host.Runner

// Ostree is the engine that uses libostree's command line, for a host booted into an ostree
// deployment. It stages a deployment, checks it, and finalizes it explicitly.
//
// So nothing is left to the shutdown, where nobody would see a failure.
type Ostree struct {
	Sysroot *ostree.Sysroot
	Run     Run
	// Space looks at the file system of /boot; nil: host.SpaceAt.
	Space func(path string) (host.Space, error)
	// Warn is told what went wrong after a commit that stays; nil: nobody is.
	Warn func(string)
}

var _ pivot.Engine = (*Ostree)(nil)

// Preflight implements pivot.Engine. It writes nothing.
func (e *Ostree) Preflight(ctx context.Context, plan pivot.Plan) error {
	if len(plan.Packages) > 0 {
		return cannotChange(plan.Packages)
	}
	return e.checkMove(ctx)
}

// checkLayered returns an error if something is layered on the booted image, which only
// rpm-ostree can keep.
func (e *Ostree) checkLayered() error {
	booted, err := e.Sysroot.Booted()
	if err != nil || !booted.Origin.Layered() {
		return err
	}
	return fault.New(fault.Refused, "cannot move this host to another image by ostree alone: packages or other changes are layered on the booted one, and would be dropped").
		WithHint("use --engine=rpm-ostree, which keeps them, or undo them first: rpm-ostree reset")
}

// Prepare stages the deployment and checks the staged state against the request.
func (e *Ostree) Prepare(ctx context.Context, r pivot.Spec) error {
	if !r.Image.IsZero() {
		if err := e.checkMove(ctx); err != nil {
			return err
		}
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	if err := e.checkRemovable(); err != nil {
		return err
	}
	if err := e.stage(ctx, r, booted); err != nil {
		return err
	}
	if err := e.checkNoPackages(r); err != nil {
		return err
	}
	return e.checkPrepared(ctx, r)
}

// checkMove returns an error if the engine cannot make a deployment of another image, as far as
// this is known without the image.
func (e *Ostree) checkMove(ctx context.Context) error {
	if err := e.checkLayered(); err != nil {
		return err
	}
	return e.checkSandbox(ctx)
}

// stage lets libostree stage the deployment, locked from the start, and holds it back: a reboot before Commit must
// boot the old system, not the new image without its entries.
func (e *Ostree) stage(ctx context.Context, r pivot.Spec, booted ostree.Deployment) error {
	if err := e.checkLock(); err != nil { // Discard checks it only if something is staged
		return err
	}
	// Replacing a staged deployment is not enough: libostree since 2023.7 would remove the lock file.
	if err := e.Discard(ctx); err != nil {
		return err
	}
	lock, err := e.lock(ctx)
	if err != nil {
		return err
	}
	err = e.stageHeld(func() error { return e.deploy(ctx, r, booted, append([]string{"--stage"}, lock...)...) })
	if err != nil {
		return fmt.Errorf("cannot stage deployment of %s: %w", r.Commit, err)
	}
	_, err = e.checkStaged(r)
	return err
}

// deploy runs "ostree admin deploy" for the request, with additional options.
func (e *Ostree) deploy(ctx context.Context, r pivot.Spec, booted ostree.Deployment, options ...string) error {
	// Not in /tmp, which is /sysroot/tmp on many hosts, and read-only.
	file, err := os.CreateTemp("/run", "pivot-origin-*")
	if err != nil {
		return fmt.Errorf("cannot write the deployment's origin: %w", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.Write(origin(r, booted).Bytes()); err != nil {
		return fmt.Errorf("cannot write the deployment's origin: %w", err)
	}
	overlays, err := e.overlays(r, booted)
	if err == nil {
		_, err = e.Run(ctx, deployCommand(r, file.Name(), append(overlays, options...))...)
	}
	return err
}

// checkLock returns a transient error while another program holds the sysroot's lock. libostree's
// command line would wait for the lock forever, and silently.
func (e *Ostree) checkLock() error {
	path := filepath.Join(e.Sysroot.Physical(), "ostree/lock")
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at the lock of the deployments: %w", err)
	}
	defer file.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	// libostree's kind of lock (libglnx, glnx_make_lock_file).
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return fmt.Errorf("cannot look at the lock of the deployments: %w", err)
	}
	if lock.Type == unix.F_UNLCK {
		return nil
	}
	return fault.New(fault.Unavailable, "another program is changing the deployments: it holds the lock %s", path).
		WithHint("see which it is: fuser -v %s", path)
}

// deployCommand returns the command line of a deployment. It has the complete list of kernel arguments instead of
// edits, because their rules differ between versions. So the staged state always has a list, too.
func deployCommand(r pivot.Spec, originFile string, options []string) []string {
	argv := append([]string{"ostree", "admin", "deploy", "--os=" + r.Merge.Stateroot,
		"--origin-file=" + originFile, "--karg-none"}, options...)
	for _, arg := range r.Kargs {
		argv = append(argv, "--karg-append="+arg)
	}
	return append(argv, r.Commit)
}

// origin returns the origin of the new deployment: that of the new image, or the booted one's if
// the image stays.
func origin(r pivot.Spec, booted ostree.Deployment) ostree.Origin {
	switch {
	case r.Image.IsZero():
		return booted.Origin
	case r.Image.Native:
		return ostree.ContainerOrigin(r.Image.Container())
	}
	return ostree.LegacyOrigin(r.Commit, customURL(r.Image), customDescription)
}

// The custom origin of a deployment from a legacy image, in the form that the
// machine-config-daemon uses (pkg/daemon/rpm-ostree.go).
const customDescription = "Managed by pivot"

func customURL(image pivot.Image) string { return "pivot://" + image.Reference().String() }

// lock locks the deployment that is staged next, either by the returned options or by the file
// that older versions use.
func (e *Ostree) lock(ctx context.Context) (options []string, err error) {
	tool, err := e.queryTool(ctx, "ostree")
	if err != nil {
		return nil, err
	}
	if tool.since(2023, 8) {
		return []string{"--lock-finalization"}, nil
	}
	return nil, e.touchLock()
}

func (e *Ostree) lockFile() string { return filepath.Join(e.Sysroot.RunDir(), ostree.LockFile) }

func (e *Ostree) touchLock() error {
	if err := os.MkdirAll(e.Sysroot.RunDir(), 0o755); err != nil {
		return fmt.Errorf("cannot lock the staged deployment: %w", err)
	}
	if err := os.WriteFile(e.lockFile(), nil, 0o600); err != nil {
		return fmt.Errorf("cannot lock the staged deployment: %w", err)
	}
	return nil
}

// Discard removes a staged deployment, if there is one, and its lock. It does not wait for another program that changes
// the deployments, such as rpm-ostree's daemon after its client timed out. What is staged is locked, so it cannot
// become the next boot.
func (e *Ostree) Discard(ctx context.Context) error {
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	if staged != nil {
		if err := e.checkLock(); err != nil {
			return err
		}
		// A staged deployment is always the first.
		_, err := e.Run(ctx, "ostree", "admin", "undeploy", "0")
		if left, rerr := e.Sysroot.Staged(); err != nil && (rerr != nil || left != nil) {
			return fmt.Errorf("cannot remove the staged deployment: %w", err)
		}
	}
	if err := os.Remove(e.lockFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the staged deployment's lock: %w", err)
	}
	return nil
}
