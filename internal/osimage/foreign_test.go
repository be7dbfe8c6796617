package osimage_test

import (
	"archive/tar"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/test/worlds/registry"
)

// TestForeignAttributes: metadata that a build on another system leaves in a layer is left out, and a note says so.
func TestForeignAttributes(t *testing.T) {
	o, h := newOSTree(t), newHost(t, registry.Options{})
	img := o.asBase().derive([][]entry{{
		having(regular("usr/bin/x", "x"), "SCHILY.xattr.com.apple.provenance", "\x01\x02", "SCHILY.xattr.user.x", "1"),
		having(directory("usr/share/mac"), "SCHILY.xattr.system.nfs4_acl", "\x00\x01"),
		having(entry{Header: tar.Header{Name: "usr/bin/y", Typeflag: tar.TypeSymlink, Linkname: "x"}}, "SCHILY.xattr.com.apple.quarantine", "q"),
	}})
	ref, _ := h.push("os", img)
	repo := bare(t)
	result, err := h.importRef(ref, repo)
	if err != nil {
		t.Fatal(err)
	}
	if tree := list(t, repo, result.Commit); strings.Contains(tree, "apple") || strings.Contains(tree, "nfs4") || !strings.Contains(tree, "user.x") {
		t.Errorf("the tree:\n%s", tree)
	}
	if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, `3 extended attribute(s) of other systems, as "com.apple.provenance" of "usr/bin/x" in derived layer 1, are left out`) {
		t.Errorf("notes:\n%s", notes)
	}
}

// TestMisbuilt: the hint is a remedy for the cause. Pushing an image again does not change what its build has put into it.
func TestMisbuilt(t *testing.T) {
	for name, err := range map[string]error{
		"upwards":  func() error { _, err := layer.New().Kept("usr/../../x"); return err }(),
		"too long": func() error { _, err := layer.New().Kept("usr/" + strings.Repeat("x", 300)); return err }(),
	} {
		if hint := fault.HintOf(err); strings.Contains(hint, "again") || !strings.Contains(hint, "correct how it is built") {
			t.Errorf("%s: %v\nhint: %s", name, err, hint)
		}
	}
}
