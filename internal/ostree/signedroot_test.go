package ostree_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/ostreetree"
)

// signedTree is a repository with a system that boots only if it is signed.
type signedTree struct {
	t          *testing.T
	repo, tree string
}

const keyFile = "usr/etc/ostree/initramfs-root-binding.key"

func newSignedTree(t *testing.T) *signedTree {
	t.Helper()
	s := &signedTree{t, newRepo(t).Path(), t.TempDir()}
	_, public := ostreetree.Key(1)
	s.write("usr/lib/ostree/prepare-root.conf", "[composefs]\nenabled=signed\n")
	s.write("usr/lib/ostree/ostree-prepare-root", "\x00composefs+ostree: Validating composefs using bootc base commit\x00")
	s.write(keyFile, public)
	return s
}

func (s *signedTree) write(name, text string) {
	s.t.Helper()
	write(s.t, filepath.Join(s.tree, name), text)
}

var rootDigest = strings.Repeat("ab", 32)

// commit commits the tree, with the digest of its composefs image.
func (s *signedTree) commit(args ...string) string {
	s.t.Helper()
	bytes := strings.TrimSuffix(strings.Repeat("0xab, ", 32), ", ")
	return s.plain(append(args, "--add-metadata=ostree.composefs.digest.v0=[byte "+bytes+"]")...)
}

func (s *signedTree) plain(args ...string) string {
	s.t.Helper()
	return run(s.t, append([]string{"ostree", "commit", "--repo=" + s.repo, "--orphan", "--tree=dir=" + s.tree}, args...)...)
}

// merge makes a commit as an import makes it from a container image of another commit.
func (s *signedTree) merge(base string) string {
	s.t.Helper()
	return s.plain("--parent="+base, "--add-metadata-string=ostree.container.image-config={}")
}

func (s *signedTree) sign(commit string, seeds ...byte) {
	s.t.Helper()
	for _, seed := range seeds {
		key, _ := ostreetree.Key(seed)
		check(s.t, ostreetree.Sign(s.repo, commit, key))
	}
}

// TestSignedRoot: what ostree-prepare-root accepts has its digest, and what it does not accept is refused by the reason
// (libostree 2026.4).
func TestSignedRoot(t *testing.T) {
	for name, c := range map[string]struct {
		make  func(s *signedTree) (commit string)
		wrong string
	}{
		"signed": {func(s *signedTree) string { c := s.commit(); s.sign(c, 1); return c }, ""},
		"by one of two keys": {func(s *signedTree) string {
			_, other := ostreetree.Key(2)
			_, public := ostreetree.Key(1)
			s.write(keyFile, other+"\n"+public)
			c := s.commit()
			s.sign(c, 1)
			return c
		}, ""},
		"by the key at keypath": {func(s *signedTree) string {
			_, public := ostreetree.Key(3)
			s.write("usr/share/key", public)
			s.write("usr/lib/ostree/prepare-root.conf", "[composefs]\nenabled=signed\nkeypath=/usr/share/key\n")
			c := s.commit()
			s.sign(c, 3)
			return c
		}, ""},
		"an image of it":             {func(s *signedTree) string { c := s.commit(); s.sign(c, 1); return s.merge(c) }, ""},
		"not signed":                 {func(s *signedTree) string { return s.commit() }, "has no signature"},
		"an image of one not signed": {func(s *signedTree) string { return s.merge(s.commit()) }, "has no signature"},
		"a child, but no image":      {func(s *signedTree) string { c := s.commit(); s.sign(c, 1); return s.plain("--parent=" + c) }, "has no signature"},
		"no signature in the metadata": {func(s *signedTree) string {
			c := s.commit()
			check(s.t, ostreetree.Sign(s.repo, c))
			return c
		}, "none of the 0 signatures"},
		"by another key": {func(s *signedTree) string { c := s.commit(); s.sign(c, 2); return c }, "none of the 1 signatures"},
		"of another commit": {func(s *signedTree) string {
			other, c := s.commit("--subject=other"), s.commit()
			s.sign(other, 1)
			meta := func(c string) string { return filepath.Join(s.repo, "objects", c[:2], c[2:]+".commitmeta") }
			check(s.t, os.Rename(meta(other), meta(c)))
			return c
		}, "none of the 1 signatures"},
		"no digest": {func(s *signedTree) string { c := s.plain(); s.sign(c, 1); return c }, "does not name its image of composefs"},
		"a short digest": {func(s *signedTree) string {
			c := s.plain("--add-metadata=ostree.composefs.digest.v0=[byte 0xab]")
			s.sign(c, 1)
			return c
		}, "does not name its image of composefs"},
		"layers on it": {func(s *signedTree) string { c := s.commit(); s.sign(c, 1); s.write("usr/more", "x"); return s.merge(c) }, "and not its layers"},
		"an old libostree": {func(s *signedTree) string {
			s.write("usr/lib/ostree/ostree-prepare-root", "x")
			c := s.commit()
			s.sign(c, 1)
			return s.merge(c)
		}, "older than 2025.7"},
		"an old libostree, not an image": {func(s *signedTree) string {
			s.write("usr/lib/ostree/ostree-prepare-root", "x")
			c := s.commit()
			s.sign(c, 1)
			return c
		}, ""},
		"a libostree without Ed25519": {func(s *signedTree) string {
			s.write("usr/lib/ostree/ostree-prepare-root", "ed25519 signature validation requested, but support not compiled in\x00using bootc base commit\x00")
			c := s.commit()
			s.sign(c, 1)
			return c
		}, "built without what verifies it"},
		"no program": {func(s *signedTree) string {
			check(s.t, os.Remove(filepath.Join(s.tree, "usr/lib/ostree/ostree-prepare-root")))
			c := s.commit()
			s.sign(c, 1)
			return c
		}, "to verify it"},
		"no key": {func(s *signedTree) string {
			check(s.t, os.Remove(filepath.Join(s.tree, keyFile)))
			c := s.commit()
			s.sign(c, 1)
			return c
		}, "cannot be checked"},
		"an empty key": {func(s *signedTree) string { s.write(keyFile, "\n"); c := s.commit(); s.sign(c, 1); return c }, "has no key"},
		"a short key":  {func(s *signedTree) string { s.write(keyFile, "AAAA\n"); c := s.commit(); s.sign(c, 1); return c }, "no Ed25519 key"},
		"no base64":    {func(s *signedTree) string { s.write(keyFile, "?\n"); c := s.commit(); s.sign(c, 1); return c }, "no Ed25519 key"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSignedTree(t)
			commit, err := ostree.ParseChecksum(c.make(s))
			check(t, err)
			repo, err := ostree.OpenRepo(s.repo)
			check(t, err)
			setup, err := repo.PrepareRoot(commit)
			check(t, err)
			digest, err := repo.SignedRoot(commit, setup, false)
			if _, not := errors.AsType[*ostree.UnsignedError](err); c.wrong != "" && (!not || !strings.Contains(fmt.Sprint(err), c.wrong)) {
				t.Errorf("error %v, want %q", err, c.wrong)
			} else if c.wrong == "" && (err != nil || digest.String() != rootDigest) {
				t.Errorf("digest %s, %v", digest, err)
			}
		})
	}
}
