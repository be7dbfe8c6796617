package ostree

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"machine-pivot/internal/ostree/gvariant"
)

// A system with composefs.enabled=signed boots only if a key in its initramfs has signed the digest
// of its composefs image. SignedRoot does what ostree-prepare-root does then (libostree 2026.4,
// otcore_mount_rootfs), with the key that the image has for its initramfs.

// What ostree-prepare-root reads.
const (
	// rootKeyPath is the default of composefs.keypath; dracut copies this file into the initramfs.
	rootKeyPath = "/etc/ostree/initramfs-root-binding.key"
	// signaturesKey is the key of the Ed25519 signatures in the detached metadata of a commit.
	signaturesKey = "ostree.sign.ed25519"
	// composefsKey is the key of the fs-verity digest of the composefs image in a commit's metadata.
	composefsKey = "ostree.composefs.digest.v0"
	// imageConfigKey is a key in the metadata of commits that were made from container images.
	imageConfigKey = "ostree.container.image-config"

	// prepareRootProgram is the program that dracut copies into the initramfs. What it can do, only
	// its messages say.
	prepareRootProgram = "usr/lib/ostree/ostree-prepare-root"
	// saysParent is in a message of one that accepts the signature of a parent (since libostree 2025.7).
	saysParent = "using bootc base commit"
	// saysNever is in a message of one that was built without Ed25519, such as Debian's, or without
	// composefs. It boots no system that demands a signature.
	saysNever, saysNoComposefs = "ed25519 signature validation requested, but support not compiled in", "composefs: enabled at runtime, but support is not compiled in"
)

// UnsignedError is the error for a commit that ostree-prepare-root would not boot, because its signature does
// not bind its composefs image to the image's key.
type UnsignedError struct{ Reason string }

func (e *UnsignedError) Error() string {
	return "it boots only if its own key has signed it (composefs.enabled=signed in its prepare-root.conf), but " + e.Reason
}

func unsigned(format string, args ...any) error { return &UnsignedError{fmt.Sprintf(format, args...)} }

// SignedRoot returns the fs-verity digest that ComposefsFile must have in a deployment of a commit with these
// settings. merged says that not the commit is deployed, but one that is made of it with the same tree. It checks what the
// image's own initramfs will check, and refuses what cannot be checked here. The error is an UnsignedError if no valid
// signature says so.
func (at Objects) SignedRoot(c Checksum, p PrepareRoot, merged bool) (digest Checksum, err error) {
	signed, err := at.signedCommit(c)
	if err != nil {
		return digest, err
	}
	if err := at.checkProgram(c, signed != c || merged); err != nil {
		return digest, err
	}
	keys, err := at.rootKeys(c, p.keyPath)
	if err != nil {
		return digest, err
	}
	if err := at.checkSignature(signed, keys); err != nil {
		return digest, err
	}
	info, err := at.LoadCommit(signed)
	if err != nil {
		return digest, err
	}
	value, _ := info.Metadata(composefsKey).([]byte)
	if len(value) != len(digest) {
		return digest, unsigned("commit %s, which is signed, does not name its image of composefs (%s)", signed, composefsKey)
	}
	return Checksum(value), nil
}

// signedCommit returns the commit with the signature that counts: the deployed one, or if that has no detached metadata
// and was made from a container image, its parent.
func (at Objects) signedCommit(c Checksum) (Checksum, error) {
	if at.has(ObjectName{c, CommitMeta}) {
		return c, nil
	}
	info, err := at.LoadCommit(c)
	if err != nil {
		return c, err
	}
	if _, isImage := info.Metadata(imageConfigKey).(string); !isImage || !at.has(ObjectName{info.Parent, CommitMeta}) {
		return c, unsigned("commit %s has no signature", c)
	}
	parent, err := at.LoadCommit(info.Parent)
	if err != nil {
		return c, err
	}
	if parent.RootTree != info.RootTree || parent.RootMeta != info.RootMeta {
		return c, unsigned("its signature covers commit %s, from which it was made, and not its layers", info.Parent)
	}
	return info.Parent, nil
}

func (at Objects) has(n ObjectName) bool {
	_, err := os.Lstat(at(n))
	return err == nil
}

// checkProgram returns an error if the initramfs of a commit cannot verify signatures, or only accepts one of
// the commit itself where its parent's counts.
func (at Objects) checkProgram(c Checksum, parents bool) error {
	program, err := at.ReadFileUpTo(c, prepareRootProgram, maxFile)
	switch {
	case notYet(err):
		return err
	case err != nil:
		return unsigned("the image has no /%s to verify it", prepareRootProgram)
	case bytes.Contains(program, []byte(saysNever)), bytes.Contains(program, []byte(saysNoComposefs)):
		return unsigned("its libostree was built without what verifies it (Ed25519, composefs), and would stop in the initramfs")
	case parents && !bytes.Contains(program, []byte(saysParent)):
		return unsigned("its libostree is older than 2025.7, and accepts only a signature of the commit that is made from the image")
	}
	return nil
}

// rootKeys reads the public keys that a commit has for its initramfs.
func (at Objects) rootKeys(c Checksum, keyPath string) (keys []ed25519.PublicKey, err error) {
	text, err := at.ReadFileUpTo(c, InCommit(keyPath), 64<<10)
	if notYet(err) {
		return nil, err
	}
	if err != nil {
		return nil, unsigned("its key %s cannot be checked, because the image does not have this file outside of its initramfs", keyPath)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, unsigned("%s has a line that is no Ed25519 key", keyPath)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, unsigned("%s has no key", keyPath)
	}
	return keys, nil
}

// notYet reports whether an error is about an object that is not fetched yet, and not about a path that a
// commit does not have.
func notYet(err error) bool {
	_, missing := errors.AsType[*fs.PathError](err)
	return missing && errors.Is(err, fs.ErrNotExist)
}

// checkSignature returns an error unless one of the keys has signed a commit. Keys and signatures are tried in
// the order in which ostree-prepare-root tries them, which ends at one that is malformed.
func (at Objects) checkSignature(c Checksum, keys []ed25519.PublicKey) error {
	commit, err := at.readMetadata(ObjectName{c, Commit})
	if err != nil {
		return err
	}
	signatures, err := at.signatures(c)
	if err != nil {
		return err
	}
	for _, key := range keys {
		for _, signature := range signatures {
			if len(signature) != ed25519.SignatureSize {
				return unsigned("commit %s has a signature that is none of Ed25519", c)
			}
			if ed25519.Verify(key, commit, signature) {
				return nil
			}
		}
	}
	return unsigned("none of the %d signatures of commit %s is by its key", len(signatures), c)
}

// signatures returns the Ed25519 signatures in the detached metadata of a commit.
func (at Objects) signatures(c Checksum) (all [][]byte, err error) {
	name := ObjectName{c, CommitMeta}
	data, err := at.readMetadata(name)
	if err != nil {
		return nil, err
	}
	value, err := gvariant.Decode("a{sv}", data)
	if err != nil {
		return nil, corrupt(name, "%v", err)
	}
	list, _ := dictionary(value)[signaturesKey].([]any)
	for _, one := range list {
		if signature, ok := one.([]byte); ok {
			all = append(all, signature)
		}
	}
	return all, nil
}
