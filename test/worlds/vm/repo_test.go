package vm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
)

// TestRepository checks Refs and Fsck on disks with an intact repository and with damaged ones: a ref without its
// commit, a partial commit, a missing object, an object of zeros.
func TestRepository(t *testing.T) {
	if testing.Short() {
		t.Skip("makes disks; not in a short run")
	}
	need.Ostree(t)
	whole := func(string) error { return nil }
	for _, c := range []struct {
		name   string
		layout Layout
		damage func(object string) error
		object string
		want   string // part of the error; "": none
	}{
		{"whole", Layout{}, whole, "*.commit", ""},
		{"whole, in a partition", Layout{Root: XFS, SeparateBoot: true}, whole, "*.commit", ""},
		{"ref without a commit", Layout{}, os.Remove, "*.commit", "commit"},
		{"a partial commit", Layout{}, markPartial, "*.commit", "commitpartial is there"},
		{"commit without an object", Layout{}, os.Remove, "*.dirtree", "dirtree"},
		{"an object of zeros", Layout{}, zero, "*.file", "orrupted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if missing := append(lacking("mkfs.ext4", "e2fsck"), c.layout.Missing()...); len(missing) > 0 {
				need.Lacking(t, "cannot mount disks here: lacking "+strings.Join(missing, ", "))
			}
			sysroot := sampleSysroot(t)
			if err := c.damage(sampleRepo(t, filepath.Join(sysroot, "ostree/repo"), c.object)); err != nil {
				t.Fatal(err)
			}
			m := &Machine{Disk: filepath.Join(t.TempDir(), "disk")}
			if err := c.layout.makeDisk(t.Context(), m.Disk, sysroot, 320); err != nil {
				t.Fatal(err)
			}
			disk, err := m.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer disk.Close()
			if refs, err := disk.Refs(); err != nil || !slices.Equal(refs, []string{sampleRef}) {
				t.Errorf("refs %q, %v, want %s", refs, err, sampleRef)
			}
			err = disk.Fsck(t.Context())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// sampleRef is the ref of sampleRepo's commit.
const sampleRef = "test/os"

// sampleRepo makes a repository with a commit of one file, and returns the path of the first object with a name that
// matches the pattern.
func sampleRepo(t *testing.T, repo, pattern string) (object string) {
	t.Helper()
	tree := t.TempDir()
	err := os.WriteFile(filepath.Join(tree, "file"), []byte("content"), 0o644)
	for _, argv := range [][]string{{"init", "--mode=bare"}, {"commit", "--branch=" + sampleRef, tree}} {
		if err == nil {
			_, err = run(t.Context(), append([]string{"ostree", "--repo=" + repo}, argv...)...)
		}
	}
	found, gerr := filepath.Glob(filepath.Join(repo, "objects/*", pattern))
	if err = errors.Join(err, gerr); err != nil || len(found) == 0 {
		t.Fatalf("objects %v, %v", found, err)
	}
	return found[0]
}

// markPartial marks a commit as partial.
func markPartial(commit string) error {
	shard, objects := filepath.Dir(commit), filepath.Dir(filepath.Dir(commit))
	checksum := filepath.Base(shard) + strings.TrimSuffix(filepath.Base(commit), ".commit")
	return os.WriteFile(filepath.Join(filepath.Dir(objects), "state", checksum+".commitpartial"), nil, 0o644)
}

// zero overwrites a file with zeros.
func zero(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, make([]byte, info.Size()), info.Mode())
}
