package hostimages

import (
	"context"
	"fmt"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// Release implements pivot.Images. It deletes the ref that protects an imported commit from
// pruning, and removes the images that no deployment uses any more. Otherwise the repository
// would keep every image that the host ever had.
func (s Store) Release(ctx context.Context, image pivot.Image, keep ...string) error {
	var needed []ostree.Checksum
	for _, text := range append(keep, image.Commit) {
		commit, err := ostree.ParseChecksum(text)
		if err != nil {
			return err
		}
		needed = append(needed, commit)
	}
	return s.removing(ctx, func(repo *ostree.Repo, deployed []ostree.Checksum) (unused bool, err error) {
		if err := repo.DeleteRef(osimage.KeepAliveRef(image.Commit)); err != nil {
			return false, err
		}
		return osimage.RemoveUndeployed(repo, append(deployed, needed...)...)
	})
}

// Remove implements pivot.Images. An image after an interrupted pull need not have a commit.
func (s Store) Remove(ctx context.Context, images []pivot.Image) error {
	if len(images) == 0 {
		return nil
	}
	return s.removing(ctx, func(repo *ostree.Repo, deployed []ostree.Checksum) (unused bool, err error) {
		for _, image := range images {
			commit, found, err := commitOf(repo, image)
			if err == nil && found {
				unused = unused || !slices.Contains(deployed, commit)
				err = osimage.Remove(repo, commit, deployed...)
			}
			if err != nil {
				return unused, fault.New(fault.CannotWrite, "cannot remove the image %s, which an earlier run has pulled: %w", image.Reference(), err)
			}
		}
		return unused, nil
	})
}

// removing calls remove with the repository and the deployed commits. If remove has removed what
// no deployment uses, removing prunes the repository.
func (s Store) removing(ctx context.Context, remove func(repo *ostree.Repo, deployed []ostree.Checksum) (unused bool, err error)) error {
	deployed, err := s.deployed()
	if err != nil {
		return err
	}
	repo, view, err := s.Host.OpenRepo()
	if err != nil {
		return err
	}
	defer view.Close()
	unused, err := remove(repo, deployed)
	if unused {
		s.prune(ctx)
	}
	return err
}

// deployed returns the commits that deployments need, of a staged one too. Where packages are
// layered, these are the deployed commit and the image's.
func (s Store) deployed() (commits []ostree.Checksum, err error) {
	all, err := s.Host.Sysroot().Deployments()
	for _, d := range all {
		commits = append(commits, d.Checksum, d.Base)
	}
	if err != nil {
		return nil, err
	}
	staged, err := s.Host.Sysroot().Staged()
	if err != nil || staged == nil {
		return commits, err
	}
	repo, err := s.Host.ReadRepo()
	if err != nil {
		return nil, err
	}
	commit, err := repo.LoadCommit(staged.Target.Checksum)
	if err != nil {
		return nil, err
	}
	return append(commits, staged.Target.Checksum, commit.Base()), nil
}

// prune deletes the objects that no ref and no deployment needs. A failure is only noted,
// because the next deployment prunes too.
func (s Store) prune(ctx context.Context) {
	command := []string{"ostree", "admin", "cleanup"}
	if s.Host.Root != "/" {
		command = append(command, "--sysroot="+s.Host.Sysroot().Physical())
	}
	if _, err := s.Host.Run(ctx, command...); err != nil {
		s.Note(fmt.Sprintf("the space of images that are not needed any more is not free yet: %v", err))
	}
}

// commitOf returns the commit that an image was imported as. After an interrupted pull
// image.Commit is empty, and commitOf searches the repository.
func commitOf(repo *ostree.Repo, image pivot.Image) (commit ostree.Checksum, found bool, err error) {
	if image.Commit != "" {
		commit, err = ostree.ParseChecksum(image.Commit)
		return commit, err == nil, err
	}
	return osimage.Imported(repo, image.Reference())
}
