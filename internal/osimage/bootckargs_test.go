package osimage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/ostreetree"
)

// commitKargs commits a tree with the given files and links below usr/lib/bootc/kargs.d.
func commitKargs(t *testing.T, files map[string]string, links ...string) (*ostree.Repo, ostree.Checksum) {
	t.Helper()
	need.Ostree(t)
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(tree, "usr/lib"), 0o755))
	for name, text := range files {
		name = filepath.Join(tree, osimage.KargsDir, name)
		must(os.MkdirAll(filepath.Dir(name), 0o755))
		must(os.WriteFile(name, []byte(text), 0o644))
	}
	for _, name := range links {
		must(os.Symlink("/etc/passwd", filepath.Join(tree, osimage.KargsDir, name)))
	}
	return committed(t, dir)
}

// committed commits the directory tree of a directory, and returns the repository there.
func committed(t *testing.T, dir string) (*ostree.Repo, ostree.Checksum) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	repo, tree := filepath.Join(dir, "repo"), filepath.Join(dir, "tree")
	_, err := ostreetree.Ostree("init", "--mode=bare", "--repo="+repo)
	must(err)
	text, err := ostreetree.Ostree("commit", "--repo="+repo, "--branch=x", tree)
	must(err)
	c, err := ostree.ParseChecksum(text)
	must(err)
	opened, err := ostree.OpenRepo(repo)
	must(err)
	return opened, c
}

// TestReadKargs reads files that the real ostree has committed.
func TestReadKargs(t *testing.T) {
	many := map[string]string{}
	for n := range osimage.MaxKargsFiles + 1 {
		many[fmt.Sprintf("%04d.toml", n)] = `kargs = ["x"]`
	}
	for _, c := range []struct {
		name              string
		files             map[string]string
		links             []string
		want, warn, wrong string
	}{
		{name: "no directory"},
		{name: "by the order of names", files: map[string]string{"20-b.toml": `kargs = ["b"]`, "10-a.toml": `kargs = ["a"]`, "9.toml": `kargs = ["nine"]`}, want: "a b nine"},
		{name: "another name", files: map[string]string{"10-a.toml": `kargs = ["a"]`, "README": "none"}, want: "a", warn: "/usr/lib/bootc/kargs.d/README is not read"},
		{name: "a directory", files: map[string]string{"below.toml/10-a.toml": `kargs = ["a"]`}},
		{name: "a link", files: map[string]string{"10-a.toml": `kargs = ["a"]`}, links: []string{"20-b.toml"}, want: "a", wrong: "20-b.toml: it is a symbolic link"},
		{name: "a large file", files: map[string]string{"a.toml": strings.Repeat("#", osimage.MaxKargsSize+1)}, wrong: "a.toml: it has more than 65536 bytes"},
		{name: "two wrong ones", files: map[string]string{"a.toml": "x", "b.toml": "x=1"}, wrong: "b.toml: there is no key x"},
		{name: "too many", files: many, want: strings.TrimSpace(strings.Repeat("x ", osimage.MaxKargsFiles)), wrong: "0256.toml: one file too many"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo, of := commitKargs(t, c.files, c.links...)
			a, err := osimage.ReadKargs(repo, of, "amd64")
			if err != nil {
				t.Fatal(err)
			}
			if a.Line.String() != c.want {
				t.Errorf("arguments %q, want %q", a.Line, c.want)
			}
			if got := strings.Join(a.Warnings, "\n"); !strings.Contains(got, c.warn) || (got == "") != (c.warn == "") {
				t.Errorf("warnings %q, want %q", got, c.warn)
			}
			if err := a.Err(); (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("error %v, want %q", err, c.wrong)
			}
		})
	}
	repo, _ := commitKargs(t, nil)
	if _, err := osimage.ReadKargs(repo, ostree.Checksum{}, "amd64"); err == nil {
		t.Error("a commit that is not there")
	}
}

// TestReadKargsThroughLinks: a directory that is a link, or below one, is read as the deployed system sees it.
func TestReadKargsThroughLinks(t *testing.T) {
	need.Ostree(t)
	for name, c := range map[string]struct {
		link, to    string
		want, wrong string
	}{
		"the directory itself": {link: osimage.KargsDir, to: "/usr/share/k/kargs.d", want: "a"},
		"its parent":           {link: "usr/lib/bootc", to: "../share/k", want: "a"},
		"to nothing":           {link: osimage.KargsDir, to: "/usr/share/none"},
		"to a file":            {link: osimage.KargsDir, to: "/usr/share/k/kargs.d/10-a.toml", wrong: "it is not a directory"},
		"in a circle":          {link: osimage.KargsDir, to: "kargs.d", wrong: "through too many links"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tree := filepath.Join(dir, "tree")
			if err := errors.Join(
				os.MkdirAll(filepath.Join(tree, "usr/share/k/kargs.d"), 0o755), os.MkdirAll(filepath.Dir(filepath.Join(tree, c.link)), 0o755),
				os.WriteFile(filepath.Join(tree, "usr/share/k/kargs.d/10-a.toml"), []byte(`kargs = ["a"]`), 0o644), os.Symlink(c.to, filepath.Join(tree, c.link)),
			); err != nil {
				t.Fatal(err)
			}
			repo, of := committed(t, dir)
			a, err := osimage.ReadKargs(repo, of, "amd64")
			if err != nil || a.Line.String() != c.want {
				t.Errorf("arguments %q, %v; want %q", a.Line, err, c.want)
			}
			if wrong := a.Err(); (wrong != nil) != (c.wrong != "") || wrong != nil && !strings.Contains(wrong.Error(), c.wrong) {
				t.Errorf("error %v, want %q", wrong, c.wrong)
			}
		})
	}
}
