package osimage_test

import (
	"testing"

	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/registry"
)

// TestHardLinksToLinks: a hard link to a hard link has the file that the latter has, in whatever
// order and layer they are, and wherever the file is.
func TestHardLinksToLinks(t *testing.T) {
	h := newHost(t, registry.Options{})
	base := newOSTree(t).asBase()
	lower := []entry{regular("usr/share/one", "1")}
	for name, layers := range map[string][][]entry{
		"the link first":      {lower, {hard("usr/share/b", "usr/share/one"), hard("usr/share/a", "usr/share/b")}},
		"the link last":       {lower, {hard("usr/share/a", "usr/share/b"), hard("usr/share/b", "usr/share/one")}},
		"in another layer":    {lower, {hard("usr/share/b", "usr/share/one")}, {hard("usr/share/a", "usr/share/b")}},
		"a link in between":   {lower, {hard("usr/share/c", "usr/share/one"), hard("usr/share/a", "usr/share/b"), hard("usr/share/b", "usr/share/c")}},
		"of the base":         {{hard("usr/share/b", "usr/bin/tool"), hard("usr/share/a", "usr/share/b"), regular("usr/share/b2", "1")}},
		"replaced in between": {lower, {hard("usr/share/b", "usr/share/one")}, {regular("usr/share/one", "2")}, {hard("usr/share/a", "usr/share/b")}},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 5)
			h.t = t
			ref, _ := h.push("links", base.derive(layers))
			repo := bare(t)
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			ostreeTool(t, "fsck", "--repo="+repo)
			want := base.copy()
			for _, layer := range layers {
				for _, e := range layer {
					if len(e.Body) > 0 {
						want.write(e.Name, string(e.Body))
						continue
					}
					content := "1"
					if name == "of the base" {
						content = "tool"
					}
					want.write(e.Name, content)
				}
			}
			sameTree(t, repo, result.Commit, want)
		})
	}
}
