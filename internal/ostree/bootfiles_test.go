package ostree_test

import (
	"path/filepath"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
)

// TestBootFiles: BootFiles returns the files of a real commit that belong to /boot, and no
// others.
func TestBootFiles(t *testing.T) {
	need.Ostree(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "repo")
	run(t, "ostree", "init", "--repo="+path, "--mode=bare")
	repo, err := ostree.OpenRepo(path)
	check(t, err)
	for name, c := range map[string]struct {
		files map[string]string
		want  map[string]int64
	}{
		"kernel and device trees": {
			files: map[string]string{"vmlinuz": "kernel", "initramfs.img": "initramfs", "dtb/a/b.dtb": "tree", "modules.dep": "x", "kernel/x.ko": "x"},
			want:  map[string]int64{"vmlinuz": 6, "initramfs.img": 9, "dtb/a/b.dtb": 4},
		},
		"no kernel in the modules' directory": {},
	} {
		t.Run(name, func(t *testing.T) {
			tree := t.TempDir()
			write(t, filepath.Join(tree, "usr/lib/os-release"), name)
			for file, content := range c.files {
				write(t, filepath.Join(tree, "usr/lib/modules/6.1", file), content)
			}
			commit, err := ostree.ParseChecksum(run(t, "ostree", "commit", "--repo="+path, "--orphan", "--tree=dir="+tree))
			check(t, err)
			files, err := repo.BootFiles(commit)
			check(t, err)
			for _, f := range files {
				if size, ok := c.want[f.Name]; !ok || size != f.Size {
					t.Errorf("%+v, want %d bytes", f, size)
				}
				delete(c.want, f.Name)
			}
			if len(c.want) > 0 {
				t.Errorf("missing: %v", c.want)
			}
		})
	}
}
