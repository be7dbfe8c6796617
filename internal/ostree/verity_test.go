package ostree_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/ostreetree"
)

// verityDir returns a directory on an ext4 with fs-verity, if this kernel supports that.
func verityDir(t *testing.T) (dir string, supported bool) {
	t.Helper()
	need.Root(t)
	need.Program(t, "mkfs.ext4")
	image := filepath.Join(t.TempDir(), "image")
	dir = t.TempDir()
	check(t, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20)))
	run(t, "mkfs.ext4", "-q", "-O", "verity", image)
	run(t, "mount", "-o", "loop", image, dir)
	t.Cleanup(func() { run(t, "umount", dir) })
	_, err := os.Stat("/sys/fs/ext4/features/verity")
	return dir, err == nil
}

// repoWith makes a bare repository with a configuration at path.
func repoWith(t *testing.T, path, config string) *ostree.Repo {
	t.Helper()
	need.Ostree(t)
	if _, err := os.Stat(path); err != nil {
		check(t, ostreetree.Init(path, "bare"))
	}
	check(t, os.WriteFile(filepath.Join(path, "config"), []byte("[core]\nrepo_version=1\nmode=bare\n"+config), 0o644))
	r, err := ostree.OpenRepo(path)
	check(t, err)
	return r
}

// lacking returns the regular objects of a repository that lack fs-verity, and how many have it.
func lacking(t *testing.T, r *ostree.Repo) (lack []string, have int) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(r.Path(), "objects/*/*"))
	check(t, err)
	for _, path := range all {
		info, err := os.Lstat(path)
		check(t, err)
		if !info.Mode().IsRegular() {
			continue
		}
		has, err := ostree.HasVerity(path)
		check(t, err)
		if has {
			have++
		} else {
			lack = append(lack, path)
		}
	}
	return lack, have
}

// TestObjectsGetVerity: what the configuration wants, as libostree reads it, is what objects get: all of them or none. Where it is
// required but not supported, nothing is written.
func TestObjectsGetVerity(t *testing.T) {
	s := newSource(t)
	dir, supported := verityDir(t)
	const no, maybe, yes = "no", "maybe", "yes"
	for name, c := range map[string]struct{ config, wanted string }{
		"nothing said":                    {"", no},
		"yes":                             {"[ex-integrity]\nfsverity=yes\n", yes},
		"true":                            {"[ex-integrity]\nfsverity=true\n", yes},
		"maybe":                           {"[ex-integrity]\nfsverity=maybe\n", maybe},
		"no":                              {"[ex-integrity]\nfsverity=no\n", no},
		"composefs implies maybe":         {"[ex-integrity]\ncomposefs=yes\n", maybe},
		"composefs, if possible, as well": {"[ex-integrity]\ncomposefs=maybe\n", maybe},
		"no composefs":                    {"[ex-integrity]\ncomposefs=false\n", no},
		"composefs without":               {"[ex-integrity]\ncomposefs=yes\nfsverity=no\n", no},
		"the older key":                   {"[ex-fsverity]\nrequired=true\n", yes},
		"the older key, if possible":      {"[ex-fsverity]\nopportunistic=true\n", maybe},
		"the newer key has precedence":    {"[ex-integrity]\nfsverity=maybe\n[ex-fsverity]\nrequired=true\n", maybe},
	} {
		t.Run(name, func(t *testing.T) {
			for where, supported := range map[string]bool{t.TempDir(): supportsHere(t), dir: supported} {
				r := repoWith(t, filepath.Join(where, name), c.config)
				gives, err := r.GivesVerity()
				if c.wanted == yes && !supported {
					expectNoVerity(t, r, err)
					continue
				}
				if want := c.wanted != no && supported; err != nil || gives != want || r.WantsVerity() != (c.wanted != no) {
					t.Fatalf("fs-verity for objects: %v, %v, want %v", gives, err, want)
				}
				_, err = importAll(t, r, s.commit, s.objects())
				check(t, err)
				if lack, have := lacking(t, r); gives && len(lack) > 0 || !gives && have > 0 {
					t.Errorf("%d objects have it, and these lack it: %q", have, lack)
				}
				nothingLeft(t, r)
			}
		})
	}
}

// supportsHere reports whether the directory for temporary files supports fs-verity.
func supportsHere(t *testing.T) bool {
	t.Helper()
	gives, err := repoWith(t, filepath.Join(t.TempDir(), "repo"), "[ex-integrity]\nfsverity=maybe\n").GivesVerity()
	check(t, err)
	return gives
}

func expectNoVerity(t *testing.T, r *ostree.Repo, err error) {
	t.Helper()
	if none, ok := errors.AsType[*ostree.NoVerityError](err); !ok || none.Path != r.Path() {
		t.Errorf("error %v", err)
	}
	_, err = r.BeginImport(t.Context())
	if _, ok := errors.AsType[*ostree.NoVerityError](err); !ok {
		t.Errorf("the import begins: %v", err)
	}
	nothingLeft(t, r)
}

// TestVerityConfigRefused: values that libostree does not accept.
func TestVerityConfigRefused(t *testing.T) {
	for _, config := range []string{
		"[ex-integrity]\nfsverity=perhaps\n", "[ex-integrity]\nfsverity=\n", "[ex-integrity]\ncomposefs=on\n", "[ex-fsverity]\nrequired=2\n",
	} {
		path := filepath.Join(t.TempDir(), "repo")
		repoWith(t, path, "")
		check(t, os.WriteFile(filepath.Join(path, "config"), []byte("[core]\nrepo_version=1\nmode=bare\n"+config), 0o644))
		if _, err := ostree.OpenRepo(path); err == nil {
			t.Errorf("%q is accepted", config)
		}
		if err := exec.Command("ostree", "refs", "--repo="+path).Run(); err == nil && config[1:5] != "ex-i" { // older releases do not know ex-integrity
			t.Errorf("ostree accepts %q", config)
		}
	}
}

// TestVerityOfOlderObjects: a commit is published only with fs-verity on all of its objects, also on
// those that the repository had without it.
func TestVerityOfOlderObjects(t *testing.T) {
	dir, supported := verityDir(t)
	if !supported {
		t.Skip("this kernel has no fs-verity; test/suites/e2e.TestVerity does the same in a guest that has it")
	}
	s := newSource(t)
	path := filepath.Join(dir, "repo")
	r := repoWith(t, path, "")
	_, err := importAll(t, r, s.commit, s.objects(), "os")
	check(t, err)
	err = r.CheckVerity(t.Context(), s.commit)
	if _, ok := errors.AsType[*ostree.UnsealedError](err); !ok {
		t.Errorf("error %v, want that of an object without fs-verity", err)
	}
	r = repoWith(t, path, "[ex-integrity]\nfsverity=yes\n")
	_, err = importAll(t, r, s.commit, s.objects(), "os")
	check(t, err)
	check(t, r.CheckVerity(t.Context(), s.commit))
	lack, have := lacking(t, r)
	if len(lack) > 0 || have == 0 {
		t.Errorf("%d objects have fs-verity, and these lack it: %q", have, lack)
	}
	all, err := filepath.Glob(filepath.Join(path, "objects/*/*.dirtree"))
	check(t, err)
	if f, err := os.OpenFile(all[0], os.O_WRONLY, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("%s can be opened for writing: %v, %v", all[0], f, err)
	}
}
