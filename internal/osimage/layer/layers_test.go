package layer_test

import (
	"archive/tar"
	"fmt"
	"maps"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
)

// merged merges layers of items on one that has what a bootable tree needs.
func merged(t *testing.T, store *memory, layers ...[]item) (layer.Merged, error) {
	t.Helper()
	tree := layer.NewPlainTree(store)
	for _, items := range append([][]item{system()}, layers...) {
		l, err := read(t, store, items)
		if err == nil {
			err = tree.Add(l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return tree.Finish(t.Context(), nil)
}

// TestEmptyFilesOfBuilders: what builders leave empty as mount points is not in the tree; with content, or as a link, it is.
func TestEmptyFilesOfBuilders(t *testing.T) {
	for name, c := range map[string]struct {
		items []item
		want  map[string]string
	}{
		"empty": {[]item{{"etc/hostname", "", tar.TypeReg}, {"etc/resolv.conf", "", tar.TypeReg}, {"etc/hosts", "", tar.TypeReg}}, map[string]string{"usr/etc/hosts": ""}},
		"full":  {[]item{{"etc/hostname", "a\n", tar.TypeReg}, {"etc/resolv.conf", "../run/x", tar.TypeSymlink}}, map[string]string{"usr/etc/hostname": "a\n", "usr/etc/resolv.conf": "-> ../run/x"}},
	} {
		store := newMemory()
		result, err := merged(t, store, c.items)
		if err != nil {
			t.Fatal(err)
		}
		got := store.paths(result.Root, "", map[string]string{})
		maps.DeleteFunc(got, func(at, _ string) bool { return !strings.HasPrefix(at, "usr/etc/") })
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestPatternOfDirectories: a policy is refused if its pattern for directories cannot be used, though no file needs it.
func TestPatternOfDirectories(t *testing.T) {
	const selinux = "etc/selinux/"
	_, err := merged(t, newMemory(), []item{
		{selinux + "config", "SELINUX=enforcing\nSELINUXTYPE=small\n", tar.TypeReg}, {selinux + "small/policy/policy.33", "binary", tar.TypeReg},
		{selinux + "small/contexts/files/file_contexts", "/.* system_u:object_r:default_t:s0\n/usr/share(?=x)? -d system_u:object_r:usr_t:s0\n", tar.TypeReg},
		{"usr/share", "", tar.TypeDir},
	})
	if fault.KindOf(err) != fault.Refused {
		t.Errorf("error %v", err)
	}
}

// TestMemory: each name of a layer counts, whatever it is, so that a limit holds for layers of many names.
func TestMemory(t *testing.T) {
	const names, least = 1000, 160
	for kind, add := range map[string]func(l *layer.Layer, name string) error{
		"directories": func(l *layer.Layer, name string) error { return l.AddDir(name, ostree.DirInfo{Mode: 0o755}) },
		"files":       func(l *layer.Layer, name string) error { _, err := l.AddFile(name, 0, 0, false); return err },
		"links":       func(l *layer.Layer, name string) error { return l.AddLink(name, "usr/target", 0, 0) },
		"hidden": func(l *layer.Layer, name string) error {
			_, err := l.AddFile("sysroot/ostree/"+name, 0, 0, false)
			return err
		},
	} {
		l := layer.New()
		for n := range names {
			if err := add(l, fmt.Sprintf("usr/%d", n)); err != nil {
				t.Fatal(err)
			}
		}
		if l.Memory() < names*least {
			t.Errorf("%d %s count as %d bytes", names, kind, l.Memory())
		}
	}
}

// TestBelowFile: nothing can be below a file of the same layer, in either order.
func TestBelowFile(t *testing.T) {
	for name, items := range map[string][]item{
		"a directory":           {{"usr/a", "x", tar.TypeReg}, {"usr/a/b", "", tar.TypeDir}},
		"a file":                {{"usr/a", "x", tar.TypeReg}, {"usr/a/b", "x", tar.TypeReg}},
		"a file in place of it": {{"usr/a/b", "", tar.TypeDir}, {"usr/a", "x", tar.TypeReg}},
		"the same name":         {{"usr/a", "x", tar.TypeReg}, {"usr/a", "", tar.TypeDir}},
	} {
		if _, err := read(t, newMemory(), items); fault.KindOf(err) != fault.BadInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChainOfLinks: hard links to one another lead to the file at their end, in this layer or in a lower one, in any order.
func TestChainOfLinks(t *testing.T) {
	store := newMemory()
	content := store.add(memoryFile{content: []byte("content")})
	for _, order := range [][][2]string{
		{{"usr/a", "usr/b"}, {"usr/b", "usr/c"}, {"usr/c", "usr/lib/os-release"}},
		{{"usr/c", "usr/lib/os-release"}, {"usr/b", "usr/c"}, {"usr/a", "usr/b"}},
		{{"usr/a", "usr/b"}, {"usr/b", "usr/c"}, {"usr/c", "usr/own"}},
	} {
		l := layer.New()
		set, err := l.AddFile("usr/own", 0, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		set(content, false)
		for _, link := range order {
			if err := l.AddLink(link[0], link[1], 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		l.Complete()
		tree := layer.NewPlainTree(store)
		lower, err := read(t, store, system())
		if err == nil {
			err = tree.Add(lower)
		}
		if err == nil {
			err = tree.Add(l)
		}
		if err != nil {
			t.Fatal(err)
		}
		result, err := tree.Finish(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := store.paths(result.Root, "", map[string]string{})
		want := got["usr/lib/os-release"]
		if order[2][1] == "usr/own" {
			want = "content"
		}
		if got["usr/a"] != want || got["usr/b"] != want || got["usr/c"] != want {
			t.Errorf("%v: %q, %q, %q", order, got["usr/a"], got["usr/b"], got["usr/c"])
		}
	}
}

// TestLongestPath: a path may have as many bytes as a host can store, and no more.
func TestLongestPath(t *testing.T) {
	path := strings.Repeat("a/", 2047) + "a" // 4095 bytes
	if _, err := layer.New().Kept(path); err != nil {
		t.Error(err)
	}
	if _, err := layer.New().Kept(path + "a"); err == nil {
		t.Error("one byte more is taken")
	}
}

// TestNotedAttributes: a layer's directory that differs from the tree's by its owner, its group or its mode alone is noted.
func TestNotedAttributes(t *testing.T) {
	for name, c := range map[string]struct {
		info ostree.DirInfo
		note string
	}{
		"same":  {ostree.DirInfo{Mode: 0o755}, ""},
		"owner": {ostree.DirInfo{UID: 1, Mode: 0o755}, "has 0755 and 1:0"},
		"group": {ostree.DirInfo{GID: 2, Mode: 0o755}, "has 0755 and 0:2"},
		"mode":  {ostree.DirInfo{Mode: 0o700}, "has 0700 and 0:0"},
	} {
		store := newMemory()
		tree := layer.NewPlainTree(store)
		lower, err := read(t, store, append(system(), item{"usr/share", "", tar.TypeDir}))
		if err == nil {
			err = tree.Add(lower)
		}
		l := layer.New()
		if err == nil {
			err = l.AddDir("usr/share", c.info)
		}
		if err == nil {
			err = tree.Add(l)
		}
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(tree.Notes(), "\n"); !strings.Contains(notes, c.note) || (notes == "") != (c.note == "") {
			t.Errorf("%s: %q", name, notes)
		}
	}
}

// TestForeign: what an OS does not show beside /usr and /etc is left out of the tree and of the layer's own one, and noted.
func TestForeign(t *testing.T) {
	store := newMemory()
	meta, _ := store.AddDirInfo(t.Context(), ostree.DirInfo{Mode: 0o755})
	empty, _ := store.AddDirectory(t.Context(), &ostree.Directory{})
	root, _ := store.AddDirectory(t.Context(), &ostree.Directory{Dirs: map[string]ostree.DirChecksums{"usr": {Tree: empty, Meta: meta}}})
	tree, err := layer.NewTree(store, ostree.DirChecksums{Tree: root, Meta: meta})
	if err != nil {
		t.Fatal(err)
	}
	l, err := read(t, store, append(system(), item{"opt/a", "x", tar.TypeReg}, item{"file", "x", tar.TypeReg}))
	if err == nil {
		err = tree.Add(l)
	}
	if err != nil {
		t.Fatal(err)
	}
	result, err := tree.Finish(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []ostree.DirChecksums{result.Root, result.Layers[0].Root} {
		for at := range store.paths(of, "", map[string]string{}) {
			if at != "usr" && !strings.HasPrefix(at, "usr/") {
				t.Errorf("there is %s", at)
			}
		}
	}
	if notes := strings.Join(result.Notes, "\n"); !result.Layers[0].Part || !strings.Contains(notes, "/opt of derived layer") || !strings.Contains(notes, "/file of derived layer") {
		t.Errorf("part: %v; notes %q", result.Layers[0].Part, notes)
	}
}
