package main

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/ostreetree"
)

const MiB = 1 << 20

// TestHostileMetadata imports images with metadata that would take gigabytes when decoded. Each import must fail as bad
// input, within 150 MB of memory and a few seconds.
func TestHostileMetadata(t *testing.T) {
	if testing.Short() {
		t.Skip("makes and imports images of hundreds of MiB")
	}
	need.Ostree(t)
	zeroes := func(n int) []byte { return make([]byte, n) }
	one := func(entries ...entry) hostile { return hostile{layers: [][]entry{entries}} }
	commit := func(typ string, metadata []byte) hostile {
		return one(object(".commit", commitOf(t, typ, metadata, nil)))
	}
	// labelled returns an image with a label for its commit, so that the objects of the commit
	// are looked up.
	labelled := func(objects ...entry) hostile {
		h := one(objects...)
		sum := strings.TrimSuffix(strings.ReplaceAll(strings.TrimPrefix(objects[0].name, "srv/repo/objects/"), "/", ""), ".commit")
		h.labels = map[string]string{"com.coreos.ostree-commit": sum}
		return h
	}
	tree := func(root []byte) hostile {
		return labelled(object(".commit", commitOf(t, "ay", nil, root)), object(".dirtree", root), object(".dirmeta", dirMeta(t, []any{})))
	}
	four := func(make func(n int) []entry) (h hostile) {
		for n := range 4 {
			h.layers = append(h.layers, make(n))
		}
		return h
	}
	for name, c := range map[string]struct {
		image func() hostile
		text  string
	}{
		"booleans of 32 MiB": {func() hostile { return commit("ab", zeroes(32*MiB)) }, "more than 16777216"},
		"pairs of 120 MiB":   {func() hostile { return commit("a(yy)", zeroes(120*MiB)) }, "more than 16777216"},
		"booleans":           {func() hostile { return commit("ab", zeroes(15*MiB)) }, "missing"},
		"pairs":              {func() hostile { return commit("a(yy)", zeroes(15*MiB)) }, "missing"},
		"empty arrays":       {func() hostile { return commit("aay", zeroes(15*MiB)) }, "missing"},
		"units":              {func() hostile { return commit("a()", zeroes(15*MiB)) }, "missing"},
		"strings": {func() hostile {
			return commit("as", array(3*MiB, func(int) []byte { return []byte{0} }))
		}, "missing"},
		"variants": {func() hostile {
			padded := append(zeroes(5), 0, 0, 'y') // each at a multiple of 8
			return commit("av", array(MiB, func(i int) []byte { return padded[min(i, 1)*-5+5:] }))
		}, "missing"},
		"entries": {func() hostile {
			padded := []byte("\x00\x00\x00\x00k\x00\x00\x00\x00\x00\x00\x00\x01\x00y\x02")
			return one(object(".commitmeta", array(MiB*3/4, func(i int) []byte { return padded[min(i, 1)*-4+4:] })))
		}, "missing"},
		"four at once": {func() hostile {
			return four(func(n int) []entry {
				return []entry{object(".commit", commitOf(t, "ab", zeroes(15*MiB-n), nil)), object(".commit", commitOf(t, "ab", zeroes(14*MiB-n), nil))}
			})
		}, "missing"},
		"a directory of files":       {func() hostile { return tree(directory(370_000, true)) }, "missing"},
		"a directory of directories": {func() hostile { return tree(directory(200_000, false)) }, "missing"},
		"directories that expand": {func() hostile {
			trees := expanding(t, 30)
			root := trees[len(trees)-1]
			objects := []entry{object(".commit", commitOf(t, "ay", nil, root)), object(".dirmeta", dirMeta(t, []any{}))}
			for _, data := range trees {
				objects = append(objects, object(".dirtree", data))
			}
			return labelled(objects...)
		}, "stands for more than 10000000 files and directories"},
		"attributes of a directory": {func() hostile {
			return one(object(".dirmeta", dirMeta(t, raw(t, "a(ayay)", attributes(MiB)))))
		}, "names of its extended attributes"},
		"attributes of files": {func() hostile {
			many := attributes(95_000)
			return four(func(n int) (all []entry) {
				for i := range 8 {
					all = append(all, filez(t, n*8+i, many))
				}
				return all
			})
		}, "names of its extended attributes"},
		"sets of attributes": {func() hostile {
			const each = 31 // few enough to fit, but enough that all layers have some before the first one ends
			h := four(func(n int) (all []entry) {
				for i := range each {
					set := append(zeroes(MiB-1), byte(n*each+i))
					sum := fmt.Sprintf("%x", sha256.Sum256(set))
					all = append(all, file("sysroot/ostree/repo/objects/"+sum[:2]+"/"+sum[2:]+".file-xattrs", set))
				}
				return all
			})
			h.native = true
			return h
		}, "bytes of extended attributes that files refer to"},
		"directories of derived layers": {func() hostile {
			h := four(func(n int) (all []entry) {
				for i := range 100 {
					all = append(all, file(fmt.Sprintf("usr/%d-%d/", n, i)+strings.Repeat("d/", 1990)+"f", nil))
				}
				return all
			})
			h.labels = map[string]string{"containers.bootc": "1"}
			return h
		}, "the names in its derived layers take more than"},
		"a manifest of layers": {func() hostile {
			h := one(file("x", nil))
			h.manifest, h.config = list("layers", "{}", 1_300_000), same
			return h
		}, "more than 131072 parts"},
		"a config of history": {func() hostile {
			h := one(file("x", nil))
			h.manifest, h.config = same, list("history", "{}", 1_300_000)
			return h
		}, "more than 131072 parts"},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.image()
			path, repo := h.write(t), filepath.Join(t.TempDir(), "repo")
			if err := ostreetree.Init(repo, "bare"); err != nil {
				t.Fatal(err)
			}
			script.Bounded(t, 65, c.text, "pivot", "image", "import", "oci:"+path, "--repo", repo)
		})
	}
}
