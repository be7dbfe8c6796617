// Package rpmostree holds the engines that make deployments by driving the
// host's own tools. Today that is plain ostree; the engine for rpm-ostree takes
// the same seat, pivot.Engine.
//
// Checkout, boot loader and the merge of /etc are never done here: libostree does them.
package rpmostree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"machine-pivot/fault"
	"machine-pivot/hostfiles"
	"machine-pivot/kargs"
	"machine-pivot/ostree"
	"machine-pivot/pivot"
)

// Run runs a program of the host and returns what it printed on stdout. Its
// error holds what it printed on stderr.
type Run func(ctx context.Context, argv ...string) ([]byte, error)

// Ostree is the engine on libostree's command line, for a host booted into an
// ostree deployment: stage, check, then finalize by hand.
//
// Staging first and finalizing in a step of our own leaves nothing to be done
// at shutdown, where a failure is seen by nobody.
type Ostree struct {
	Sysroot *ostree.Sysroot
	Run     Run
}

var _ pivot.Engine = (*Ostree)(nil)

// Prepare stages the deployment and checks the staged state against the request.
func (e *Ostree) Prepare(ctx context.Context, r pivot.Request) error {
	origin, err := e.origin(r)
	if err != nil {
		return err
	}
	// Not in /tmp: on many hosts that is /sysroot/tmp, and read-only.
	file, err := os.CreateTemp("/run", "pivot-origin-*")
	if err != nil {
		return fmt.Errorf("cannot write the deployment's origin: %w", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.Write(origin.Bytes()); err != nil {
		return fmt.Errorf("cannot write the deployment's origin: %w", err)
	}
	if _, err := e.Run(ctx, stageCommand(r, file.Name())...); err != nil {
		return fmt.Errorf("cannot stage deployment of %s: %w", r.Commit, err)
	}
	return e.checkStaged(r)
}

// stageCommand names the complete list of arguments, starting from none: so it
// is ours and not the result of edits whose rules differ between versions, and
// so the staged state always holds a list.
func stageCommand(r pivot.Request, originFile string) []string {
	argv := []string{"ostree", "admin", "deploy", "--stage", "--os=" + r.Merge.Stateroot,
		"--origin-file=" + originFile, "--karg-none"}
	for _, arg := range r.Kargs {
		argv = append(argv, "--karg-append="+arg)
	}
	return append(argv, r.Commit)
}

// origin is the new deployment's: of the new image, or the booted one's when
// the image stays.
func (e *Ostree) origin(r pivot.Request) (ostree.Origin, error) {
	if r.Image.IsZero() {
		booted, err := e.Sysroot.Booted()
		if err != nil {
			return ostree.Origin{}, err
		}
		return booted.Origin, nil
	}
	if r.Image.Container != "" {
		return ostree.ContainerOrigin(r.Image.Container), nil
	}
	return ostree.LegacyOrigin(r.Commit, "pivot://"+r.Image.Reference, "Managed by pivot"), nil
}

// checkStaged holds what libostree will finalize against the request, field by field.
func (e *Ostree) checkStaged(r pivot.Request) error {
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	if staged == nil {
		return fmt.Errorf("cannot stage deployment of %s: ostree reported success but nothing is staged", r.Commit)
	}
	wrong := func(what string, got, want any) error {
		return fmt.Errorf("cannot trust the staged deployment: %s is %v, wanted %v", what, got, want)
	}
	switch {
	case staged.Target.Checksum.String() != r.Commit:
		return wrong("commit", staged.Target.Checksum, r.Commit)
	case staged.Target.Stateroot != r.Merge.Stateroot:
		return wrong("stateroot", staged.Target.Stateroot, r.Merge.Stateroot)
	case staged.Merge.Checksum.String() != r.Merge.Commit || staged.Merge.Serial != r.Merge.Serial:
		return wrong("the deployment whose /etc is merged", staged.Merge.Checksum, r.Merge.Commit)
	case staged.Locked:
		return wrong("lock", "set", "none")
	case !staged.HasKernelArguments || !sameArguments(staged.KernelArguments, r.Kargs):
		return wrong("kernel arguments", kargs.Line(staged.KernelArguments), r.Kargs)
	}
	return nil
}

// sameArguments compares to the letter, but for ostree=, which libostree writes anew.
func sameArguments(got, want kargs.Line) bool { return withoutOstree(got).Equal(withoutOstree(want)) }

func withoutOstree(l kargs.Line) kargs.Line {
	var rest kargs.Line
	for _, arg := range l {
		if len(kargs.Line{arg}.Values("ostree")) == 0 {
			rest = append(rest, arg)
		}
	}
	return rest
}

// Commit finalizes the staged deployment with the files laid over the /etc that
// libostree merges. The commit point is libostree's one rename of /boot/loader.
func (e *Ostree) Commit(ctx context.Context, r pivot.Request) error {
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	err = hostfiles.WithOverlay(filepath.Join(booted.Path, "etc"), r.Files, func() error {
		_, err := e.Run(ctx, "ostree", "admin", "finalize-staged")
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot finalize the staged deployment: %w", err)
	}
	return e.checkCommitted(r)
}

// checkCommitted holds what the next boot will start against the request.
func (e *Ostree) checkCommitted(r pivot.Request) error {
	all, err := e.Sysroot.Deployments()
	if err != nil {
		return err
	}
	if len(all) == 0 || all[0].Checksum.String() != r.Commit {
		return fault.New(fault.Internal, "cannot finalize the staged deployment: ostree reported success but the default boot entry is another one")
	}
	next := all[0]
	if options := kargs.Split(next.Entry.Options); !sameArguments(options, r.Kargs) {
		return fmt.Errorf("cannot trust the new boot entry: its options are %q, wanted %q", options, r.Kargs)
	}
	for _, f := range r.Files {
		got, ok, err := hostfiles.Read(next.Path, f.Path)
		if err != nil {
			return err
		}
		if !ok || !got.Equal(f) {
			return fmt.Errorf("cannot trust the new deployment: its %s is missing or differs", f.Path)
		}
	}
	return nil
}

// Discard removes a staged deployment, if there is one.
func (e *Ostree) Discard(ctx context.Context) error {
	staged, err := e.Sysroot.Staged()
	if err != nil || staged == nil {
		return err
	}
	// A staged deployment is always the first.
	if _, err := e.Run(ctx, "ostree", "admin", "undeploy", "0"); err != nil {
		return fmt.Errorf("cannot remove the staged deployment: %w", err)
	}
	return nil
}
