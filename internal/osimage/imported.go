package osimage

import (
	"slices"

	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
)

// Imported finds the commit that an ostree-native image was imported as: by the ref for
// its name, or else under any name by the digest of its manifest. It never finds a reference
// without a digest, because the tag may name another image by now.
func Imported(repo *ostree.Repo, ref imageref.Reference) (commit ostree.Checksum, found bool, err error) {
	if ref.Digest() == "" {
		return commit, false, nil
	}
	return findImported(repo, ref, ref.Digest())
}

// findImported finds the commit of an image by its pinned name, or by one of the digests
// of its manifest.
func findImported(repo *ostree.Repo, ref imageref.Reference, digests ...string) (commit ostree.Checksum, found bool, err error) {
	if commit, err := repo.ResolveRef(imageRef(ref)); err == nil {
		return commit, true, nil
	}
	for _, below := range []string{imageRefs, KeepAliveRef("")} {
		refs, err := repo.Refs(below)
		if err != nil {
			return commit, false, err
		}
		for _, to := range refs {
			info, err := repo.LoadCommit(to)
			if err != nil {
				continue
			}
			if of := info.ManifestDigest(); of != "" && slices.Contains(digests, of) {
				return to, true, nil
			}
		}
	}
	return commit, false, nil
}

// Content describes an image by its files, which are read from a repository into which it was
// imported. Its JSON form is that of `pivot image inspect`.
type Content struct {
	Commit          string     `json:"commit"`         // the commit to deploy
	Base            string     `json:"base,omitempty"` // the commit below its derived layers
	KernelArguments kargs.Line `json:"kernelArguments"`
	Warnings        []string   `json:"warnings,omitempty"` // about the kernel arguments
	// Whether the image's SELinux policy differs from that of its base and from that of the
	// booted commit; nil if there is nothing to compare.
	PolicyChangedFromBase   *bool `json:"policyChangedFromBase,omitempty"`
	PolicyChangedFromBooted *bool `json:"policyChangedFromBooted,omitempty"`

	policy ostree.Checksum
}

// Content reads the image's content from a repository. It returns nil if the image was not
// imported there.
func (o *Opened) Content(repo *ostree.Repo) (*Content, error) {
	commit, found, err := o.imported(repo)
	if err != nil || !found {
		return nil, err
	}
	info, err := repo.LoadCommit(commit)
	if err != nil {
		return nil, err
	}
	own, err := ReadKargs(repo, commit, o.machine.architecture)
	if err != nil {
		return nil, err
	}
	c := &Content{Commit: commit.String(), KernelArguments: append(kargs.Line{}, own.Line...), Warnings: own.Warnings}
	if err := own.Err(); err != nil {
		c.Warnings = append(c.Warnings, err.Error())
	}
	if c.policy, err = Policy(repo, commit); err != nil {
		return nil, err
	}
	if o.Format == Layered && info.Parent != (ostree.Checksum{}) {
		c.Base = info.Parent.String()
		of, err := Policy(repo, info.Parent)
		if err != nil {
			return nil, err
		}
		c.PolicyChangedFromBase = c.differs(of)
	}
	return c, nil
}

// imported finds the commit in a repository that the image was imported as.
func (o *Opened) imported(repo *ostree.Repo) (commit ostree.Checksum, found bool, err error) {
	if o.Format.Native() {
		return findImported(repo, o.Reference, o.Digest, o.Instance)
	}
	if commit, err = ostree.ParseChecksum(o.Commit); err != nil {
		return commit, false, nil
	}
	found, err = repo.Has(ostree.ObjectName{Checksum: commit, Type: ostree.Commit})
	return commit, found && !repo.HasPartial(commit), err
}

// Policy identifies the SELinux policies of a commit by the checksum of their directory. It
// is zero if the commit has none.
func Policy(repo *ostree.Repo, commit ostree.Checksum) (ostree.Checksum, error) {
	return repo.DirTree(commit, "usr/etc/selinux")
}

// Against compares the image's SELinux policy with that of the booted commit, as returned by
// Policy, and sets PolicyChangedFromBooted.
func (c *Content) Against(policy ostree.Checksum) {
	c.PolicyChangedFromBooted = c.differs(policy)
}

// differs reports whether a policy differs from the image's. It returns nil if neither exists.
func (c *Content) differs(policy ostree.Checksum) *bool {
	if policy == c.policy && policy == (ostree.Checksum{}) {
		return nil
	}
	return new(policy != c.policy)
}
