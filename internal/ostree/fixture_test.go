package ostree_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/ostreetree"
)

// run runs a program and returns its output.
func run(t testing.TB, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// source is an archive repository with one commit of a tree with all kinds of files.
type source struct {
	t      testing.TB
	repo   string
	commit ostree.Checksum
}

func newSource(t testing.TB) *source {
	t.Helper()
	need.Ostree(t)
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	for name, content := range map[string]string{
		"usr/bin/hello": "hello world\n", "usr/bin/su": "suid", "usr/lib/empty": "", "usr/lib/x/y/z/deep": "deep",
		"usr/lib/large": strings.Repeat("0123456789abcdef", 3<<16), "usr/lib/same1": "same", "usr/lib/same2": "same",
	} {
		write(t, filepath.Join(tree, name), content)
	}
	check(t, os.Symlink("../bin/hello", filepath.Join(tree, "usr/lib/link")))
	check(t, os.Chown(filepath.Join(tree, "usr/bin/su"), 12, 34))
	check(t, unix.Chmod(filepath.Join(tree, "usr/bin/su"), 0o4755))
	check(t, os.Chmod(filepath.Join(tree, "usr/lib/x"), 0o2770))
	check(t, unix.Setxattr(filepath.Join(tree, "usr/bin/hello"), "user.zz", []byte("last"), 0))
	check(t, unix.Setxattr(filepath.Join(tree, "usr/bin/hello"), "user.aa", []byte{0, 1, 255}, 0))
	check(t, unix.Setxattr(filepath.Join(tree, "usr/lib/x"), "user.dir", []byte("d"), 0))
	// cap_net_raw+ep, the capability of ping.
	check(t, unix.Setxattr(filepath.Join(tree, "usr/lib/same2"), "security.capability", []byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
	s := &source{t: t, repo: filepath.Join(dir, "archive")}
	run(t, "ostree", "init", "--repo="+s.repo, "--mode=archive")
	commit := run(t, "ostree", "commit", "--repo="+s.repo, "-b", "os", "--tree=dir="+tree, "-s", "subject", "--add-metadata-string=version=1.2")
	c, err := ostree.ParseChecksum(commit)
	check(t, err)
	s.commit = c
	return s
}

// objects returns all loose objects by their path relative to objects/.
func (s *source) objects() map[string][]byte {
	s.t.Helper()
	all := map[string][]byte{}
	root := filepath.Join(s.repo, "objects")
	check(s.t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, root+"/")] = data
		return err
	}))
	return all
}

// newRepo creates an empty bare repository. config holds pairs of keys and values.
func newRepo(t testing.TB, config ...string) *ostree.Repo {
	t.Helper()
	need.Ostree(t)
	path := filepath.Join(t.TempDir(), "repo")
	check(t, ostreetree.Init(path, "bare"))
	for i := 0; i+1 < len(config); i += 2 {
		run(t, "ostree", "config", "--repo="+path, "set", config[i], config[i+1])
	}
	r, err := ostree.OpenRepo(path)
	check(t, err)
	return r
}

// add adds objects to an import.
func add(t testing.TB, im *ostree.Import, objects map[string][]byte) error {
	t.Helper()
	for path, data := range objects {
		name, archive, err := ostree.ParseLoosePath(path)
		check(t, err)
		if archive {
			err = im.AddArchiveFile(t.Context(), name.Checksum, bytes.NewReader(data))
		} else {
			err = im.AddMetadata(t.Context(), name, bytes.NewReader(data))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// importAll imports objects and publishes a commit with refs.
func importAll(t testing.TB, r *ostree.Repo, commit ostree.Checksum, objects map[string][]byte, refs ...string) (ostree.ImportStats, error) {
	t.Helper()
	im, err := r.BeginImport(t.Context())
	check(t, err)
	defer func() { check(t, im.Discard()) }()
	if err := add(t, im, objects); err != nil {
		return im.Stats(), err
	}
	err = im.Finish(t.Context(), ostree.Root{Commit: commit, Refs: refs})
	return im.Stats(), err
}

func write(t testing.TB, path, content string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path, []byte(content), 0o644))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
