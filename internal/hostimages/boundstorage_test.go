package hostimages_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/osimage/imageref"
)

// TestMissingBound: what is in bootc's storage, by the list that podman's library writes there.
func TestMissingBound(t *testing.T) {
	const one, two = "sha256:1111111111111111111111111111111111111111111111111111111111111111", "sha256:2222222222222222222222222222222222222222222222222222222222222222"
	root := t.TempDir()
	index := filepath.Join(root, hostimages.BoundStorage, "overlay-images/images.json")
	must(t, os.MkdirAll(filepath.Dir(index), 0o755))
	must(t, os.WriteFile(index, []byte(`[
		{"id": "a", "digest": "`+one+`", "names": ["quay.example/a:1", "quay.example/b@`+one+`"]},
		{"id": "b", "digest": "`+one+`", "names": ["quay.example/c:1"], "big-data-digests": {"manifest-`+two+`": "`+two+`", "`+one+`": "`+one+`"}},
		{"id": "c", "digest": "`+two+`"}
	]`), 0o600))
	var all []imageref.Reference
	for _, name := range []string{
		"quay.example/a:1", "quay.example/a:2", "quay.example/a@" + one, "quay.example/a@" + two, "quay.example/b@" + one, "quay.example/b:latest",
		"quay.example/c@" + two, "quay.example/c@" + one, "quay.example/d:1", "other.example/a:1",
	} {
		ref, err := imageref.Parse(name)
		must(t, err)
		all = append(all, ref)
	}
	missing, err := hostimages.MissingBound(root, all)
	must(t, err)
	if want := []imageref.Reference{all[1], all[3], all[5], all[8], all[9]}; !slices.Equal(missing, want) {
		t.Errorf("missing %v, want %v", missing, want)
	}
	if missing, err := hostimages.MissingBound(t.TempDir(), all); err != nil || !slices.Equal(missing, all) {
		t.Errorf("without a storage: %v, %v", missing, err)
	}
	must(t, os.WriteFile(index, []byte(`{`), 0o600))
	if _, err := hostimages.MissingBound(root, all); err == nil || !strings.Contains(err.Error(), index) {
		t.Errorf("a damaged list: %v", err)
	}
}
