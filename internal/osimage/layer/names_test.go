package layer_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
)

// TestNamesOfKeptLayers: the names of layers that an earlier import has kept count like those that are read.
func TestNamesOfKeptLayers(t *testing.T) {
	objects := newMemory()
	kept := func(number int) ostree.DirChecksums {
		l := layer.New()
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
		tree := layer.NewPlainTree(objects)
		for _, root := range roots[:layers] {
			if err := tree.Add(layer.From(layer.OwnTree{Root: root})); err != nil {
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

// TestNamesOfTheBase: the names of the base count where a layer changes the SELinux policy, since all of them
// are loaded then; what a large system has is within the limit.
func TestNamesOfTheBase(t *testing.T) {
	objects := newMemory()
	meta, _ := objects.AddDirInfo(t.Context(), ostree.DirInfo{Mode: 0o755})
	file := objects.add(memoryFile{content: []byte("x")})
	directory := func(files, dirs int, below ostree.Checksum) ostree.Checksum {
		d := &ostree.Directory{Files: map[string]ostree.Checksum{}, Dirs: map[string]ostree.DirChecksums{}}
		for n := range files {
			d.Files[fmt.Sprintf("file-with-some-name-%d", n)] = file
		}
		for n := range dirs {
			d.Dirs[fmt.Sprintf("dir-%d", n)] = ostree.DirChecksums{Tree: below, Meta: meta}
		}
		c, _ := objects.AddDirectory(t.Context(), d)
		return c
	}
	try := func(dirs int) error { // of ten files each, in directories of ten
		usr := directory(0, dirs/10, directory(0, 10, directory(10, 0, ostree.Checksum{})))
		root, _ := objects.AddDirectory(t.Context(), &ostree.Directory{Dirs: map[string]ostree.DirChecksums{"usr": {Tree: usr, Meta: meta}}})
		tree, err := layer.NewTree(objects, ostree.DirChecksums{Tree: root, Meta: meta})
		if err != nil {
			t.Fatal(err)
		}
		l := layer.New()
		for name, content := range map[string]string{
			"config": "SELINUX=enforcing\nSELINUXTYPE=small\n", "small/policy/policy.33": "binary",
			"small/contexts/files/file_contexts": "/.* system_u:object_r:default_t:s0\n",
		} {
			set, err := l.AddFile("etc/selinux/"+name, 0, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			set(objects.add(memoryFile{content: []byte(content)}), false)
		}
		if err := tree.Add(l); err != nil {
			return err
		}
		_, err = tree.Finish(t.Context(), nil)
		return err
	}
	if err := try(18_000); err != nil { // 180,000 files
		t.Error(err)
	}
	if err := try(60_000); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "its base is labelled by another SELinux policy") {
		t.Errorf("error %v for a base of 600,000 files", err)
	}
}
