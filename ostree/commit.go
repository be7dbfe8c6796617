package ostree

import (
	"fmt"
	"math/bits"
	"os"
	"time"

	"machine-pivot/ostree/gvariant"
)

// CommitInfo is the root of a tree.
type CommitInfo struct {
	Metadata  map[string]any // values as package gvariant maps them
	Subject   string
	Timestamp time.Time
	Parent    Checksum // zero: none
	RootTree  Checksum // of a DirTree
	RootMeta  Checksum // of a DirMeta
}

// Base is the commit that rpm-ostree layered packages or changes on, or zero: a
// commit that it made on the host has the base as its parent (rust/src/daemon.rs,
// deployment_layeredmeta_from_commit_impl).
func (c *CommitInfo) Base() Checksum {
	layered, known := c.Metadata["rpmostree.clientlayer"].(bool)
	if !known { // an old release
		_, layered = c.Metadata["rpmostree.spec"]
	}
	if !layered {
		return Checksum{}
	}
	return c.Parent
}

// Version is the commit's version as its maker calls it, or "".
func (c *CommitInfo) Version() string {
	version, _ := c.Metadata["version"].(string)
	return version
}

func parseCommit(data []byte) (*CommitInfo, error) {
	value, err := gvariant.Decode(commitType, data)
	if err != nil {
		return nil, err
	}
	t := value.(gvariant.Tuple)
	c := &CommitInfo{Metadata: dictionary(t[0]), Subject: t[3].(string)}
	if parent, _ := t[1].([]byte); len(parent) > 0 {
		if c.Parent, err = checksumOf(t[1]); err != nil {
			return nil, err
		}
	}
	c.Timestamp = time.Unix(int64(bits.ReverseBytes64(t[5].(uint64))), 0).UTC()
	if c.RootTree, err = checksumOf(t[6]); err != nil {
		return nil, err
	}
	c.RootMeta, err = checksumOf(t[7])
	return c, err
}

// dictionary reads an a{sv}; of a key that stands twice the last counts. What is
// no such entry is left out.
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
	Metadata  [][2]string // in the order it is written
	Timestamp time.Time
	RootTree  Checksum
	RootMeta  Checksum
}

// encode is the commit object.
func (c NewCommit) encode() ([]byte, error) {
	metadata := []any{}
	for _, pair := range c.Metadata {
		metadata = append(metadata, gvariant.Tuple{pair[0], gvariant.Variant{Type: "s", Value: pair[1]}})
	}
	parent := []byte{}
	if c.Parent != (Checksum{}) {
		parent = c.Parent[:]
	}
	return gvariant.Encode(commitType, gvariant.Tuple{metadata, parent, []any{}, "", "",
		bits.ReverseBytes64(uint64(c.Timestamp.Unix())), c.RootTree[:], c.RootMeta[:]})
}

// LoadCommit reads a commit.
func (r *Repo) LoadCommit(c Checksum) (*CommitInfo, error) {
	name := ObjectName{c, Commit}
	data, err := os.ReadFile(r.objectPath(name))
	if err != nil {
		return nil, fmt.Errorf("cannot load commit: %w", err)
	}
	info, err := parseCommit(data)
	if err != nil {
		return nil, corrupt(name, "%v", err)
	}
	return info, nil
}
