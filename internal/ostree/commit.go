package ostree

import (
	"math/bits"
	"time"

	"machine-pivot/internal/ostree/gvariant"
)

// CommitInfo is the content of a commit object.
type CommitInfo struct {
	Subject   string
	Timestamp time.Time
	Parent    Checksum // zero: none
	RootTree  Checksum // of a DirTree
	RootMeta  Checksum // of a DirMeta

	metadata gvariant.Value // an a{sv}; Metadata decodes its values
}

// Metadata returns a value of the commit's metadata in the Go type to which package gvariant maps it; nil if there is
// no such key, or no such type.
func (c *CommitInfo) Metadata(key string) any {
	raw, found := c.lookUp(key)
	if !found {
		return nil
	}
	value, err := raw.Decode()
	if err != nil {
		return nil
	}
	return value
}

// lookUp returns a value of the metadata. If a key occurs twice, the last value counts.
func (c *CommitInfo) lookUp(key string) (value gvariant.Value, found bool) {
	for entry := range c.metadata.Members() {
		if entry.Field(0).Text() == key {
			value, found = entry.Field(1).Field(0), true
		}
	}
	return value, found
}

// Base returns the commit to which rpm-ostree has added packages or changes, which is the
// parent of a commit that rpm-ostree made on a host. For other commits it is zero
// (rust/src/daemon.rs, deployment_layeredmeta_from_commit_impl).
func (c *CommitInfo) Base() Checksum {
	layered, known := c.Metadata("rpmostree.clientlayer").(bool)
	if !known { // made by an old release
		_, layered = c.lookUp("rpmostree.spec")
	}
	if !layered {
		return Checksum{}
	}
	return c.Parent
}

// Version returns the value of the metadata key "version", or "".
func (c *CommitInfo) Version() string {
	version, _ := c.Metadata("version").(string)
	return version
}

// ManifestKey is the metadata key of the digest of the manifest from which a container image's commit was imported
// (crates/ostree-ext/src/container/store.rs).
const ManifestKey = "ostree.manifest-digest"

// ManifestDigest returns the digest of the manifest from which the commit was imported, sha256:…, or "".
func (c *CommitInfo) ManifestDigest() string {
	digest, _ := c.Metadata(ManifestKey).(string)
	return digest
}

// parseCommit validates and parses a commit object. The result refers to data.
func parseCommit(data []byte) (*CommitInfo, error) {
	v, err := commitType.Open(data)
	if err != nil {
		return nil, err
	}
	c := &CommitInfo{
		metadata: v.Field(0), Subject: v.Field(3).Text(),
		Timestamp: time.Unix(int64(bits.ReverseBytes64(v.Field(5).Uint64())), 0).UTC(),
	}
	if parent := v.Field(1); len(parent.Bytes()) > 0 {
		if c.Parent, err = checksumIn(parent); err != nil {
			return nil, err
		}
	}
	if c.RootTree, err = checksumIn(v.Field(6)); err != nil {
		return nil, err
	}
	c.RootMeta, err = checksumIn(v.Field(7))
	return c, err
}

// dictionary converts a decoded a{sv} to a map. If a key occurs twice, the last value counts.
// Entries of other types are left out.
func dictionary(value any) map[string]any {
	m := map[string]any{}
	entries, _ := value.([]any)
	for _, entry := range entries {
		pair, _ := entry.(gvariant.Tuple)
		if len(pair) != 2 {
			continue
		}
		key, isKey := pair[0].(string)
		if v, ok := pair[1].(gvariant.Variant); ok && isKey {
			m[key] = v.Value
		}
	}
	return m
}

// NewCommit is a commit to be made, without subject and body.
type NewCommit struct {
	Parent    Checksum    // zero: none
	Metadata  [][2]string // keys and values, in the order in which they are written
	Timestamp time.Time
	RootTree  Checksum
	RootMeta  Checksum
}

// encode returns the serialized commit object.
func (c NewCommit) encode() ([]byte, error) {
	metadata := []any{}
	for _, pair := range c.Metadata {
		metadata = append(metadata, gvariant.Tuple{pair[0], gvariant.Variant{Type: "s", Value: pair[1]}})
	}
	parent := []byte{}
	if c.Parent != (Checksum{}) {
		parent = c.Parent[:]
	}
	return commitType.Encode(gvariant.Tuple{metadata, parent, []any{}, "", "",
		bits.ReverseBytes64(uint64(c.Timestamp.Unix())), c.RootTree[:], c.RootMeta[:]})
}
