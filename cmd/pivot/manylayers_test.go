package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/debianpolicy"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

// TestManyLayers imports an image with 400 layers, 100,000 names, no two equal files, and a
// policy as large as an OS's, within 128 MB of memory.
func TestManyLayers(t *testing.T) {
	if testing.Short() {
		t.Skip("imports 91,000 files, twice")
	}
	need.Ostree(t)
	policy, err := debianpolicy.Files()
	if err != nil {
		need.Lacking(t, err.Error())
	}
	image := manyLayers(t, inMemory(t), policy)
	for name, known := range map[string]map[string]string{
		"labels are guessed right": policy, // the host has the image's policy
		"no label is guessed":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			dir := inMemory(t)
			host, repo := filepath.Join(dir, "host"), filepath.Join(dir, "repo")
			if err := os.Mkdir(host, 0o755); err != nil {
				t.Fatal(err)
			}
			writeFiles(t, filepath.Join(host, "etc/selinux"), known)
			if err := ostreetree.Init(repo, "bare"); err != nil {
				t.Fatal(err)
			}
			got := script.CostOf(t, "pivot", "image", "import", "oci:"+image, "--root", host, "--repo", repo)
			if got.Exit != 0 || got.Peak > 128e6 {
				t.Errorf("want exit 0, and at most 128 MB\n%s", got.Stderr)
			}
		})
	}
}

// inMemory returns a directory on a tmpfs, because disks take minutes for so many files. Its
// pages do not count as memory of the importing process.
func inMemory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2g"); err != nil {
		need.Lacking(t, "cannot mount a file system in memory: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// manyLayers writes a plain image with a policy below a directory and returns its path.
func manyLayers(t *testing.T, dir string, policy map[string]string) string {
	t.Helper()
	dirs, files := manyNames(policy)
	img, err := oscontainer.Plain("1", append(oscontainer.Spread(append(dirs, files...), 400), oscontainer.WithWorkDir(dir))...)
	path := filepath.Join(dir, "image")
	if err == nil {
		err = oscontainer.WriteLayout(path, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// manyNames returns a bootable tree with 9,000 directories and 91,000 files. Every thousandth
// file is as large as the limit up to which an import holds files in memory.
func manyNames(policy map[string]string) (dirs, files []oscontainer.Entry) {
	for _, name := range []string{"usr", "usr/lib", "usr/lib/modules", "usr/lib/modules/1", "etc", "etc/selinux", "etc/selinux/debian",
		"etc/selinux/debian/policy", "etc/selinux/debian/contexts", "etc/selinux/debian/contexts/files", "usr/share", "usr/bin"} {
		dirs = append(dirs, oscontainer.Directory(name))
	}
	files = append(files, oscontainer.File("usr/lib/modules/1/vmlinuz", "kernel"), oscontainer.File("usr/lib/modules/1/initramfs.img", "initramfs"), oscontainer.File("usr/lib/os-release", "ID=many\n"))
	for _, name := range slices.Sorted(maps.Keys(policy)) {
		files = append(files, oscontainer.File("etc/selinux/"+name, policy[name]))
	}
	large := strings.Repeat("x", MiB-32)
	for p := range 300 {
		pkg := fmt.Sprintf("%s/package-%d", []string{"usr/share", "usr/lib", "usr/bin", "etc"}[p%4], p)
		dirs = append(dirs, oscontainer.Directory(pkg))
		for d := range 30 {
			dir := fmt.Sprintf("%s/directory-%d", pkg, d)
			dirs = append(dirs, oscontainer.Directory(dir))
			for f := range 10 {
				name := fmt.Sprintf("%s/file-%d.conf", dir, f)
				content := name
				if len(files)%1000 == 0 {
					content += large[len(name):]
				}
				files = append(files, oscontainer.File(name, content))
			}
		}
		for l := range 3 {
			files = append(files, oscontainer.Symlink(fmt.Sprintf("%s/link-%d", pkg, l), fmt.Sprintf("directory-%d/file-0.conf", p)))
		}
	}
	return dirs, files
}
