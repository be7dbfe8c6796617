package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// The new system's initramfs may be newer than the ostree that makes its deployment. If it
// demands something that this ostree does not make, the system never starts. So its demands are
// checked before anything is staged (Accept), and the result is checked before the commit
// (checkDemands). docs/dev/import.md lists the possible demands.

// CheckPrepareRoot implements pivot.Engine. It returns an error if this host cannot make what a system with
// the prepare-root configuration p needs to boot.
func (e *Ostree) CheckPrepareRoot(ctx context.Context, p ostree.PrepareRoot) error {
	d := p.Demands()
	if err := refuse(d); err != nil || !d.Composefs {
		return err
	}
	tool, err := e.queryTool(ctx, "ostree")
	if err != nil {
		return err
	}
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return err
	}
	switch {
	case !tool.has("composefs"):
		return noComposefs("libostree "+tool.version+" of this host does not have composefs",
			"use an image with composefs.enabled=maybe in /usr/lib/ostree/prepare-root.conf, or pivot first to a release that lists composefs in ostree --version")
	// Before 2024.3 the repository decides, not the tree (ostree commit cae4ceb6).
	case !tool.since(2024, 3) && !repo.WantsComposefs():
		return noComposefs("libostree "+tool.version+" of this host makes it only where the repository's configuration says so",
			"let it: ostree config --repo=/ostree/repo set ex-integrity.composefs true")
	case d.Verity:
		return checkGivesVerity(repo)
	}
	return nil
}

// checkGivesVerity returns an error unless what is imported into the repository gets fs-verity.
func checkGivesVerity(repo *ostree.Repo) error {
	gives, err := repo.GivesVerity()
	_, unsupported := errors.AsType[*ostree.NoVerityError](err)
	switch {
	case unsupported, err == nil && !gives && repo.WantsVerity():
		return noVerity("the file system of this host's repository does not support it",
			"enable it, for ext4 with tune2fs -O verity DEVICE, or use an image with composefs.enabled=yes or maybe in /usr/lib/ostree/prepare-root.conf")
	case err != nil:
		return err
	case !gives:
		return noVerity("this host's repository is not configured for it",
			"configure it: ostree config --repo=/ostree/repo set ex-integrity.fsverity yes")
	}
	return nil
}

// refuse returns an error for demands that no host can meet for a new image.
func refuse(d ostree.Demands) error {
	if d.TransientEtc {
		return fault.New(fault.Refused, "cannot deploy the image: its system forgets /etc at each boot (etc.transient in its prepare-root.conf), and with it what a pivot carries over").
			WithHint("use an image without etc.transient in /usr/lib/ostree/prepare-root.conf")
	}
	return nil
}

func noVerity(why, hint string) error {
	return fault.New(fault.Refused, "cannot deploy the image: it boots only with fs-verity on each of its files (composefs.enabled=verity or signed, in its prepare-root.conf), and %s", why).WithHint("%s", hint)
}

func noComposefs(why, hint string) error {
	return fault.New(fault.Refused, "cannot deploy the image: it boots only from an image of composefs (composefs.enabled or root.transient in its prepare-root.conf), and %s", why).WithHint("%s", hint)
}

// checkDemands returns an error if the deployment made for the request lacks what its system
// needs to boot. It checks the deployment itself, not what libostree claims to support.
func (e *Ostree) checkDemands(made ostree.Deployment, r pivot.Spec) error {
	setup, d, err := e.demands(made.Checksum, r)
	if err != nil {
		return err
	}
	// The running system meets the demands of the same image, but a transient /etc loses entries.
	if !r.Image.IsZero() || (len(r.Entries) > 0 || r.Units != nil) && d.TransientEtc {
		if err := refuse(d); err != nil {
			return err
		}
	}
	if !d.Composefs {
		return nil
	}
	info, err := os.Lstat(filepath.Join(made.Path, ostree.ComposefsFile))
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() == 0) {
		return noComposefs("ostree made a deployment without it: there is no "+ostree.ComposefsFile,
			"see what this host's ostree can do: ostree --version; and what it is told: ostree config --repo=/ostree/repo get ex-integrity.composefs")
	}
	if err != nil {
		return fmt.Errorf("cannot look at the new deployment: %w", err)
	}
	if d.Signed && !setup.Signed() {
		return fault.New(fault.Refused, "cannot deploy the image: the kernel argument %s=signed demands a signature, but no key is loaded unless its prepare-root.conf says so, too", ostree.ComposefsArgument).
			WithHint("remove the argument: --delete-karg %s=signed", ostree.ComposefsArgument)
	}
	if !d.Verity {
		return nil
	}
	if err := checkSealed(filepath.Join(made.Path, ostree.ComposefsFile)); err != nil || !d.Signed || made.Checksum.String() == r.Merge.Commit {
		return err // the commit of the running system is signed, or it would not run
	}
	return e.checkSigned(made, setup)
}

// checkSigned returns an error unless a key of the deployed image has signed the composefs image of its
// deployment.
func (e *Ostree) checkSigned(made ostree.Deployment, setup ostree.PrepareRoot) error {
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return err
	}
	want, err := repo.SignedRoot(made.Checksum, setup, false)
	if _, not := errors.AsType[*ostree.UnsignedError](err); not {
		return fault.New(fault.Refused, "cannot deploy the image: %w", err).
			WithHint("packages on top of a signed image have no signature; remove them, or use an image with composefs.enabled=verity in /usr/lib/ostree/prepare-root.conf")
	}
	if err != nil {
		return err
	}
	have, _, err := ostree.VerityDigest(filepath.Join(made.Path, ostree.ComposefsFile))
	if err == nil && have != want {
		err = fault.New(fault.Refused, "cannot deploy the image: ostree made %s with the digest %s, and %s is signed", ostree.ComposefsFile, have, want).
			WithHint("see whether this host's libostree makes the same image of composefs as the one that signed it: ostree --version")
	}
	return err
}

// checkSealed returns an error unless a composefs image has fs-verity.
func checkSealed(image string) error {
	has, err := ostree.HasVerity(image)
	if err == nil && !has {
		err = noVerity("ostree made "+ostree.ComposefsFile+" without it",
			"see what this host's ostree is told: ostree config --repo=/ostree/repo get ex-integrity.fsverity")
	}
	return err
}

// checkObjects returns an error if the system of a commit, with the request's kernel arguments, boots only with
// fs-verity and a file has none. The started system could not read it.
func (e *Ostree) checkObjects(ctx context.Context, commit ostree.Checksum, r pivot.Spec) error {
	_, d, err := e.demands(commit, r)
	if err != nil || !d.Verity {
		return err
	}
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return err
	}
	err = repo.CheckVerity(ctx, commit)
	if lacks, ok := errors.AsType[*ostree.UnsealedError](err); ok {
		return noVerity(lacks.Error(), "enable it for all objects: ostree admin post-copy")
	}
	return err
}

// demands returns how a commit's system mounts its root, and its demands with the request's kernel arguments.
func (e *Ostree) demands(commit ostree.Checksum, r pivot.Spec) (setup ostree.PrepareRoot, d ostree.Demands, err error) {
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return setup, d, err
	}
	setup, err = repo.PrepareRoot(commit)
	return setup, setup.Demands(r.Kargs.Values(ostree.ComposefsArgument)...), err
}
