package hostimages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// An OS image can bind application images, which services of the new system run (package bound). They must be in
// bootc's storage before that system boots, and only bootc writes there. So they are pulled by the running system's
// bootc before anything is committed: if one cannot be had, the next boot stays as it is. That is checked as soon as
// their names are known: before anything is fetched if the OS image is in the repository already, otherwise during its
// import.

// checkBindable checks that the application images of an OS image can be had, as far as bootc's storage lacks them. The
// system has a bootc, each can be pulled, and all have room beside what is outstanding, in bytes, of the OS image and
// of packages. need is their compressed size, in bytes.
func (s Store) checkBindable(ctx context.Context, repo *ostree.Repo, images osimage.BoundImages, outstanding int64) (need int64, err error) {
	missing, err := s.unbound(images)
	if err != nil || len(missing) == 0 {
		return 0, err
	}
	if s.Early {
		return 0, fault.New(fault.Later, "the image binds application images, which the started system pulls: %s", names(missing))
	}
	there, err := s.Host.Has(host.BootcPath)
	if err != nil {
		return 0, err
	}
	if !there {
		return 0, fault.New(fault.Refused, "cannot use the image: it binds application images, and this system has no bootc to pull them: %s", names(missing)).
			WithHint("go on without them, and pull them after the reboot, with --bound-images=ignore or this key in %s; their services cannot start before", settings.Path)
	}
	if need, err = s.sizeOf(ctx, missing); err != nil {
		return 0, err
	}
	return need, roomFor(repo, need, outstanding)
}

// checkImported is checkBindable for an OS image that is in the repository already. For another one it does
// nothing: which application images it binds, only its content says. outstanding is that of checkBindable.
func (s Store) checkImported(ctx context.Context, repo *ostree.Repo, image pivot.Image, outstanding int64) error {
	if s.IgnoreBound {
		return nil // the import takes the note
	}
	commit, found, err := commitOf(repo, image)
	if err != nil || !found {
		return err
	}
	images, err := osimage.ReadBound(repo.Objects, commit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is not whole, and is fetched again
	}
	if err == nil {
		_, err = s.checkBindable(ctx, repo, images, outstanding)
	}
	return err
}

// pullBound has bootc pull the application images that a commit binds, as far as its storage lacks them.
// checkBindable has returned need; outstanding is what is still to be fetched of packages, in bytes.
func (s Store) pullBound(ctx context.Context, repo *ostree.Repo, commit ostree.Checksum, need, outstanding int64) error {
	if s.IgnoreBound {
		return nil
	}
	missing, err := s.missingOf(repo, commit)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := roomFor(repo, need, outstanding); err != nil { // again: the OS image has taken some since
		return err
	}
	for _, ref := range missing {
		s.Note("pulling application image " + ref.String() + ", which the image binds")
		if _, err := s.Host.Run(ctx, "bootc", "image", "cmd", "pull", ref.String()); err != nil {
			return fault.New(fault.Unavailable, "cannot pull application image %s, which the image binds: %w", ref, err).
				WithHint("see whether bootc can: bootc image cmd pull %s; or go on without the application images: --bound-images=ignore", ref)
		}
	}
	return s.stillBound(repo, commit)
}

// missingOf returns the application images that a commit binds and bootc's storage lacks.
func (s Store) missingOf(repo *ostree.Repo, commit ostree.Checksum) ([]imageref.Reference, error) {
	images, err := osimage.ReadBound(repo.Objects, commit)
	if err != nil {
		return nil, err
	}
	return s.unbound(images)
}

// unbound returns the application images that bootc's storage lacks. If they are to be ignored, it takes
// a note of them and returns none.
func (s Store) unbound(images osimage.BoundImages) ([]imageref.Reference, error) {
	wrong := images.Err()
	if wrong != nil && !s.IgnoreBound {
		return nil, wrong
	}
	missing, err := MissingBound(s.Host.Sysroot().Physical(), images.References)
	if err != nil || !s.IgnoreBound {
		return missing, err
	}
	if wrong != nil {
		s.Note("warning: " + wrong.Error())
	}
	if len(missing) > 0 {
		s.Note("warning: the image binds application images that bootc's storage lacks, so that their services cannot start: " + names(missing))
	}
	return nil, nil
}

// stillBound returns an error if bootc's storage lacks an application image that a commit binds:
// other programs remove those that no deployment binds.
func (s Store) stillBound(repo *ostree.Repo, commit ostree.Checksum) error {
	if s.IgnoreBound {
		return nil
	}
	missing, err := s.missingOf(repo, commit)
	if err != nil || len(missing) == 0 {
		return err
	}
	return fault.New(fault.Unavailable, "application images that the image binds are not in bootc's storage: %s", names(missing)).
		WithHint("try again, without --from-downloaded: they are pulled again; keep other programs (bootc) from cleaning up meanwhile")
}

// sizeOf checks, with the host's signature policy and the credentials that bootc uses, that application
// images can be pulled. It returns the sum of their compressed sizes, in bytes.
func (s Store) sizeOf(ctx context.Context, images []imageref.Reference) (sum int64, err error) {
	puller, end, err := s.likeBootc()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	for _, ref := range images {
		size, err := puller.Size(ctx, ref)
		if err != nil {
			return 0, fault.New(fault.KindOf(err), "the image binds an application image: %w", err).
				WithHint("if it needs credentials: bootc uses only the first that exists of %s", strings.Join(bootcSecrets(), ", "))
		}
		sum += size
	}
	return sum, nil
}

// roomFor checks that application images of a compressed size, in bytes, have room beside what is outstanding
// of the OS image and of packages. bootc's storage is on the repository's file system, and its reserve must stay for
// libostree, which makes the deployment after the pull.
func roomFor(repo *ostree.Repo, need, outstanding int64) error {
	room, err := repo.Room()
	all := need + outstanding
	if err != nil || all <= room {
		return err
	}
	rest := ""
	if outstanding > 0 {
		rest = fmt.Sprintf(" (%s with the rest of what is fetched)", printable.Size(all, room))
	}
	return fault.New(fault.CannotWrite, "cannot pull the application images that the image binds: they have %s compressed%s, and the repository's file system has room for %s", printable.Size(need, room), rest, printable.Size(room, all)).
		WithHint("free space on the file system of /sysroot, for example with bootc image cmd prune or ostree admin cleanup")
}

// bootcSecrets returns the paths of bootc's pull secret, of which it uses the first that exists
// (crates/ostree-ext/src/globals.rs).
func bootcSecrets() []string {
	return []string{"/run/ostree/auth.json", "/etc/ostree/auth.json", "/usr/lib/ostree/auth.json"}
}

// likeBootc returns a puller that has bootc's credentials, which are none if it has no pull secret.
// end must be called after its use.
func (s Store) likeBootc() (_ *osimage.Puller, end func() error, err error) {
	puller := *s.Puller
	for _, path := range bootcSecrets() {
		there, err := s.Host.Has(path)
		if err != nil {
			return nil, nil, err
		}
		if there {
			puller.AuthFile = s.Host.Path(path)
			return &puller, func() error { return nil }, nil
		}
	}
	none, err := os.CreateTemp("/run", "pivot-auth-*")
	if err != nil {
		return nil, nil, fmt.Errorf("cannot write an empty pull secret: %w", err)
	}
	end = func() error { return errors.Join(none.Close(), os.Remove(none.Name())) }
	if _, err := none.WriteString("{}"); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot write an empty pull secret: %w", err), end())
	}
	puller.AuthFile = none.Name()
	return &puller, end, nil
}

// names returns the names of images for a message.
func names(images []imageref.Reference) string {
	var all []string
	for _, ref := range images {
		all = append(all, ref.String())
	}
	return strings.Join(all, ", ")
}

// BoundBy reads what a commit in the host's repository binds, as osimage.ReadBound.
func BoundBy(h *host.Host, commit string) (osimage.BoundImages, error) {
	of, err := ostree.ParseChecksum(commit)
	if err != nil {
		return osimage.BoundImages{}, err
	}
	repo, err := h.ReadRepo()
	if err != nil {
		return osimage.BoundImages{}, err
	}
	return osimage.ReadBound(repo.Objects, of)
}

// noteBound returns a note about the application images that a commit in the repository binds; "" if
// there are none. It is for a plan that is only shown.
func (c Content) noteBound(imported string) (string, error) {
	images, err := BoundBy(c.Host, imported)
	if err != nil {
		return "", err
	}
	if wrong := images.Err(); wrong != nil {
		return "warning: " + wrong.Error(), nil
	}
	missing, err := MissingBound(c.Host.Sysroot().Physical(), images.References)
	if err != nil || len(images.References) == 0 {
		return "", err
	}
	note := "the image binds application images (/" + osimage.BoundDir + "): " + names(images.References)
	if len(missing) > 0 {
		note += "; bootc's storage lacks " + names(missing) + ", which bootc pulls before the commit"
	}
	return note, nil
}
