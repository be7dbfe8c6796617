package hostimages

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"machine-pivot/internal/fault"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/oscontainer"
)

func testPackages() []oscontainer.RPM {
	return []oscontainer.RPM{
		{Name: "kernel-rt-core", Version: "6.1", Files: map[string][]byte{"/usr/lib/a": []byte("a")}},
		{Name: "usbguard", Version: "1.0", Files: map[string][]byte{"/usr/lib/b": []byte("b")}},
	}
}

// TestRepositoryPackages (P80): reads the output of the real createrepo_c, with each compression of its
// lists.
func TestRepositoryPackages(t *testing.T) {
	need.Program(t, "createrepo_c")
	for _, compression := range []string{"gz", "zstd", "xz"} {
		t.Run(compression, func(t *testing.T) {
			dir := t.TempDir()
			if err := oscontainer.Repository(dir, testPackages()); err != nil {
				t.Fatal(err)
			}
			if compression == "zstd" {
				recompress(t, dir)
			} else if out, err := exec.CommandContext(t.Context(), "createrepo_c", "--quiet", "--general-compress-type="+compression, dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			names, err := repositoryPackages(dir)
			if compression == "xz" {
				if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), ".xz") {
					t.Errorf("names %q, error %v", names, err)
				}
				return
			}
			if slices.Sort(names); err != nil || !slices.Equal(names, []string{"kernel-rt-core", "usbguard"}) {
				t.Errorf("names %q, %v", names, err)
			}
		})
	}
}

// recompress compresses the list with zstd, as createrepo_c does from 1.0 on, which Debian does
// not have.
func recompress(t *testing.T, dir string) {
	t.Helper()
	lists, err := filepath.Glob(filepath.Join(dir, "repodata/*-primary.xml.gz"))
	if err != nil || len(lists) != 1 {
		t.Fatal(lists, err)
	}
	packed, err := os.Open(lists[0])
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(strings.TrimSuffix(lists[0], ".gz") + ".zst")
	if err != nil {
		t.Fatal(err)
	}
	to, err := zstd.NewWriter(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, plain); err != nil {
		t.Fatal(err)
	}
	index := filepath.Join(dir, "repodata/repomd.xml")
	text, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("-primary.xml.gz"), []byte("-primary.xml.zst"))
	if err := errors.Join(to.Close(), file.Close(), os.WriteFile(index, text, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestNoRepository (P80): any defect of a repository gives an error that names it.
func TestNoRepository(t *testing.T) {
	const index = `<repomd><data type="%s"><location href="%s"/></data></repomd>`
	for name, c := range map[string]struct{ repomd, list, want string }{
		"none":           {"", "", "repomd.xml"},
		"no XML":         {"<repomd", "", "repomd.xml: "},
		"no list":        {fmt.Sprintf(index, "other", "repodata/x.xml"), "", "names no list"},
		"missing list":   {fmt.Sprintf(index, "primary", "repodata/y.xml"), "", "y.xml"},
		"outside":        {fmt.Sprintf(index, "primary", "../../etc/passwd"), "", "escapes"},
		"damaged list":   {fmt.Sprintf(index, "primary", "repodata/x.xml"), "<package><name>", "x.xml: "},
		"not compressed": {fmt.Sprintf(index, "primary", "repodata/x.gz"), "plain", "x.gz: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "repodata"), 0o755); err != nil {
				t.Fatal(err)
			}
			for file, content := range map[string]string{"repomd.xml": c.repomd, "x.xml": c.list, "x.gz": c.list} {
				if content == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, "repodata", file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if names, err := repositoryPackages(dir); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), c.want) {
				t.Errorf("names %q, error %v", names, err)
			}
		})
	}
}

// TestUnpackRepository (P80): the files of the layers are merged as a container engine would show them,
// also if an earlier attempt read a layer in part.
func TestUnpackRepository(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repository")
	if err := os.MkdirAll(filepath.Join(dir, "left"), 0o755); err != nil {
		t.Fatal(err)
	}
	u, err := unpackRepository(dir, 4, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	write := func(p *repositoryPart, files ...string) {
		t.Helper()
		for _, name := range files {
			name, content, _ := strings.Cut(name, "=")
			f, err := p.CreateFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(u.part(0), "cut off=x")
	write(u.part(0), "a=0", "a=1", "gone/b=1", "gone/deep/c=1", "d=1", "stays/e=1")
	middle := u.part(1)
	if err := middle.Remove("gone"); err != nil {
		t.Fatal(err)
	}
	write(middle, "gone/new=2", "d=2")
	top := u.part(3) // the third layer has no part of the repository
	if err := top.Remove("stays/f"); err != nil {
		t.Fatal(err)
	}
	write(top, "a=4")
	if err := u.join(); err != nil {
		t.Fatal(err)
	}
	var got []string
	err = filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		got = append(got, strings.TrimPrefix(file, dir+"/")+"="+string(content))
		return err
	})
	if want := []string{"a=4", "d=2", "gone/new=2", "stays/e=1"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, want %q: %v", got, want, err)
	}
}
