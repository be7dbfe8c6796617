package merge_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/merge"
	"machine-pivot/internal/ostree"
)

// TestNamesOfKeptLayers (D175): the names of layers that an earlier import has kept count like those that are read.
func TestNamesOfKeptLayers(t *testing.T) {
	objects := newMemory()
	kept := func(number int) ostree.DirChecksums {
		l := merge.NewLayer()
		for _, name := range []string{"usr/lib/modules/1/vmlinuz", "usr/lib/os-release"} {
			set, err := l.AddFile(name, 0, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			set(objects.add(memoryFile{content: []byte("ID=x\n")}), false)
		}
		for n := range 50_000 {
			set, err := l.AddFile(fmt.Sprintf("usr/share/%d-%d/%0200d", number, n/1000, n), 0, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			set(ostree.Checksum{1}, false)
		}
		root, _, err := l.Write(t.Context(), objects, func(string, uint32) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		return root
	}
	objects.files[ostree.Checksum{1}] = memoryFile{}
	roots := []ostree.DirChecksums{kept(0), kept(1), kept(2)}
	try := func(layers int) error {
		tree := merge.NewPlain(objects)
		for _, root := range roots[:layers] {
			if err := tree.Add(merge.LayerFrom(merge.LayerTree{Root: root})); err != nil {
				return err
			}
		}
		_, err := tree.Finish(t.Context(), nil)
		return err
	}
	if err := try(2); err != nil { // 36 MB
		t.Error(err)
	}
	if err := try(3); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "the names in its derived layers") {
		t.Errorf("error %v for three layers", err)
	}
}
