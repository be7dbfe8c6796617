package osimage

import (
	"machine-pivot/osimage/imageref"
	"machine-pivot/ostree"
)

// Imported finds the commit that an ostree-native image was imported as: by the ref of
// its name, or by the digest of its manifest whatever it was called. A name that is not
// pinned by a digest may mean another image by now, and is not looked for.
func Imported(repo *ostree.Repo, ref imageref.Reference) (commit ostree.Checksum, found bool, err error) {
	if ref.Digest() == "" {
		return commit, false, nil
	}
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
			if err == nil && info.Metadata(manifestDigest) == ref.Digest() {
				return to, true, nil
			}
		}
	}
	return commit, false, nil
}
