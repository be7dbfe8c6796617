package ostree_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/ostree/gvariant"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/sample"
)

func TestImportIsWhatLibostreeImports(t *testing.T) {
	for _, config := range [][]string{nil, {"core.per-object-fsync", "true"}, {"core.fsync", "false"}} {
		s, r := newSource(t), newRepo(t, config...)
		stats, err := importAll(t, r, s.commit, s.objects(), "pivot/"+s.commit.String())
		check(t, err)
		if stats.ObjectsNew != len(s.objects()) || stats.ObjectsTotal != stats.ObjectsNew || stats.BytesWritten == 0 {
			t.Errorf("stats %+v, want %d objects", stats, len(s.objects()))
		}
		run(t, "ostree", "fsck", "--repo="+r.Path())
		reference := newRepo(t)
		run(t, "ostree", "pull-local", "--repo="+reference.Path(), s.repo, "os")
		list := func(repo, ref string) string { return run(t, "ostree", "ls", "--repo="+repo, "-RXC", ref) }
		if got, want := list(r.Path(), "pivot/"+s.commit.String()), list(reference.Path(), "os"); got != want {
			t.Errorf("tree is\n%s\nwant\n%s", got, want)
		}
		// Compare also owner, mode, xattrs and time of each file.
		stat := func(repo string) string {
			return run(t, "sh", "-c", "cd "+repo+"/objects && find . ! -type d | sort | xargs stat -c '%n %f %u:%g %s' && find . -name '*.file' -type f | sort | xargs stat -c '%n %Y' && find . -type f | sort | xargs getfattr -m - -d 2>/dev/null || true")
		}
		if got, want := stat(r.Path()), stat(reference.Path()); got != want {
			t.Errorf("files are\n%s\nwant\n%s", got, want)
		}
		nothingLeft(t, r)
	}
}

// nothingLeft checks that an import has left neither temporary files nor partial marks.
func nothingLeft(t *testing.T, r *ostree.Repo) {
	t.Helper()
	for _, dir := range []string{"tmp", "state"} {
		entries, err := os.ReadDir(filepath.Join(r.Path(), dir))
		check(t, err)
		for _, e := range entries {
			if e.Name() != "cache" {
				t.Errorf("left in %s: %s", dir, e.Name())
			}
		}
	}
}

// TestImportsBeginTogether: imports that begin and end at the same time do not disturb each
// other, although each removes what older imports have left.
func TestImportsBeginTogether(t *testing.T) {
	r := newRepo(t)
	var imports sync.WaitGroup
	for range 8 {
		imports.Go(func() {
			for range sample.Rounds(25) {
				im, err := r.BeginImport(t.Context())
				if err != nil {
					t.Errorf("cannot begin: %v", err)
					return
				}
				if err := im.Discard(); err != nil {
					t.Errorf("cannot end: %v", err)
				}
			}
		})
	}
	imports.Wait()
	nothingLeft(t, r)
}

// TestFailedObjectTakesNoRoom: an object that cannot be written is not counted.
func TestFailedObjectTakesNoRoom(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	im := begin(t, r)
	for path, data := range s.objects() {
		hash, kind, _ := strings.Cut(path, ".")
		other := map[bool]string{true: "1", false: "0"}[strings.HasSuffix(hash, "0")]
		wrong := strings.TrimSuffix(hash, hash[len(hash)-1:]) + other + "." + kind
		if err := add(t, im, map[string][]byte{wrong: data}); err == nil && kind != "commitmeta" {
			t.Errorf("%s is accepted as %s", path, wrong)
		}
	}
	if written := im.Stats().BytesWritten; written != 0 {
		t.Errorf("%d bytes are counted as written", written)
	}
	check(t, im.Discard())
}

func TestImportTwiceWritesNothingAgain(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	_, err := importAll(t, r, s.commit, s.objects(), "a")
	check(t, err)
	stats, err := importAll(t, r, s.commit, s.objects(), "b/c")
	check(t, err)
	if stats.ObjectsNew != 0 || stats.BytesWritten != 0 {
		t.Errorf("stats %+v, want nothing new", stats)
	}
	for _, ref := range []string{"a", "b/c"} {
		if c, err := r.ResolveRef(ref); err != nil || c != s.commit {
			t.Errorf("ref %s is %s, %v", ref, c, err)
		}
	}
}

// TestDetachedMetadata: detached metadata is named after the commit, not after its own
// content. Different content replaces it; equal content is not written again.
func TestDetachedMetadata(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	objects, name := s.objects(), s.commit.String()[:2]+"/"+s.commit.String()[2:]+".commitmeta"
	_, err := importAll(t, r, s.commit, objects, "os")
	check(t, err)
	for _, value := range []string{"one", "two"} {
		objects[name], err = gvariant.Encode("a{sv}", []any{gvariant.Tuple{"key", gvariant.Variant{Type: "s", Value: value}}})
		check(t, err)
		for _, want := range []int{1, 0} {
			stats, err := importAll(t, r, s.commit, objects, "os")
			check(t, err)
			if stats.ObjectsNew != want || (stats.BytesWritten > 0) != (want > 0) {
				t.Errorf("%s: %+v, want %d new object", value, stats, want)
			}
			if got := run(t, "ostree", "show", "--repo="+r.Path(), "--print-detached-metadata-key=key", "os"); got != "'"+value+"'" {
				t.Errorf("detached metadata %s, want %s", got, value)
			}
		}
	}
}

// TestDamage damages each object in several ways. Every damage must be detected.
func TestDamage(t *testing.T) {
	s := newSource(t)
	for path, data := range s.objects() {
		for what, damaged := range map[string][]byte{
			"first byte":     flip(data, 0),
			"near the end":   flip(data, max(0, len(data)-3)), // the last byte of a deflate stream may be padding
			"in the middle":  flip(data, len(data)/2),
			"in the header":  flip(data, min(20, len(data)-1)),
			"cut":            data[:len(data)-1],
			"cut in half":    data[:len(data)/2],
			"empty":          {},
			"one byte more":  append(slices.Clone(data), 0),
			"more after it":  append(slices.Clone(data), data...),
			"another object": []byte("\x00"),
		} {
			if testing.Short() && !sample.Picks(path+what, 4) {
				continue
			}
			r := newRepo(t)
			objects := s.objects()
			objects[path] = damaged
			_, err := importAll(t, r, s.commit, objects, "ref")
			if _, ok := errors.AsType[*ostree.CorruptError](err); !ok && string(damaged) != string(data) {
				t.Errorf("%s, %s: error %v, want a CorruptError", path, what, err)
			}
			if _, err := r.ResolveRef("ref"); err == nil && string(damaged) != string(data) {
				t.Errorf("%s, %s: a ref was set", path, what)
			}
			nothingLeft(t, r)
		}
	}
}

func flip(data []byte, at int) []byte {
	changed := slices.Clone(data)
	changed[at] ^= 0x10
	return changed
}

func TestMissingObject(t *testing.T) {
	s := newSource(t)
	for path := range s.objects() {
		if testing.Short() && !sample.Picks(path, 4) {
			continue
		}
		r := newRepo(t)
		objects := s.objects()
		delete(objects, path)
		_, err := importAll(t, r, s.commit, objects, "ref")
		name, _, perr := ostree.ParseLoosePath(path)
		check(t, perr)
		if err == nil || !strings.Contains(err.Error(), name.String()) {
			t.Errorf("without %s: error %v", path, err)
		}
		if out, _ := exec.Command("find", filepath.Join(r.Path(), "objects"), "-type", "f").Output(); len(out) > 0 {
			t.Errorf("without %s objects came there: %s", path, out)
		}
		// With the missing object the import succeeds.
		_, err = importAll(t, r, s.commit, s.objects(), "ref")
		check(t, err)
	}
}

func TestForeignObjectsAreDropped(t *testing.T) {
	s, other, r := newSource(t), newSource(t), newRepo(t)
	objects := s.objects()
	maps.Copy(objects, other.objects())
	_, err := importAll(t, r, s.commit, objects, "ref")
	check(t, err)
	if s.commit != other.commit {
		if have, err := r.Has(ostree.ObjectName{Checksum: other.commit, Type: ostree.Commit}); err != nil || have {
			t.Errorf("the other commit is there too: %v, %v", have, err)
		}
	}
	run(t, "ostree", "fsck", "--repo="+r.Path())
}

func TestReserveIsKept(t *testing.T) {
	s, r := newSource(t), newRepo(t, "core.min-free-space-size", "900000TB")
	_, err := importAll(t, r, s.commit, s.objects(), "ref")
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want ENOSPC", err)
	}
}

// TestDiskFillsUp fills the disk while a large object is written: the error is ENOSPC, not a
// CorruptError, and the object can be added again later.
func TestDiskFillsUp(t *testing.T) {
	need.Root(t)
	s, dir := newSource(t), t.TempDir()
	check(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"))
	defer func() { check(t, unix.Unmount(dir, 0)) }()
	repo, filler := filepath.Join(dir, "repo"), filepath.Join(dir, "filler")
	run(t, "ostree", "init", "--repo="+repo, "--mode=bare")
	r, err := ostree.OpenRepo(repo)
	check(t, err)
	im, err := r.BeginImport(t.Context())
	check(t, err)
	defer func() { check(t, im.Discard()) }()
	check(t, os.WriteFile(filler, make([]byte, 6<<20), 0o644))

	large := map[string][]byte{}
	for path, data := range s.objects() {
		if strings.HasSuffix(path, ".filez") && len(data) > 1000 {
			large[path] = data
		}
	}
	if len(large) != 1 {
		t.Fatalf("%d large objects", len(large))
	}
	err = add(t, im, large)
	if _, blamed := errors.AsType[*ostree.CorruptError](err); blamed || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want ENOSPC", err)
	}
	check(t, os.Remove(filler))
	check(t, add(t, im, large))
}

func TestPruneWaitsForAnImport(t *testing.T) {
	r := newRepo(t)
	im, err := r.BeginImport(t.Context())
	check(t, err)
	prune := exec.Command("ostree", "prune", "--repo="+r.Path(), "--refs-only")
	check(t, prune.Start())
	ended := make(chan error, 1)
	go func() { ended <- prune.Wait() }()
	select {
	case err := <-ended:
		t.Errorf("prune did not wait (%v)", err)
	case <-time.After(500 * time.Millisecond):
	}
	check(t, im.Close())
	check(t, <-ended) // prune does not wait any longer
}

func TestOpenRepoRefusesOthers(t *testing.T) {
	for _, config := range []string{"", "[core]\nrepo_version=1\nmode=archive-z2\n", "[core]\nrepo_version=2\nmode=bare\n",
		"[core]\nrepo_version=1\nmode=bare\nmin-free-space-percent=200\n", "[core]\nrepo_version=1\nmode=bare\nmin-free-space-size=3\n"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "config"), config)
		if _, err := ostree.OpenRepo(dir); err == nil {
			t.Errorf("config %q: no error", config)
		}
	}
}

func TestLoadCommit(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	_, err := importAll(t, r, s.commit, s.objects(), "ref")
	check(t, err)
	c, err := r.LoadCommit(s.commit)
	if err != nil || c.Version() != "1.2" || c.Subject != "subject" || time.Since(c.Timestamp) > time.Hour {
		t.Errorf("%+v, %v", c, err)
	}
}

// BenchmarkImport imports many small objects. The relevant metric is files/s.
func BenchmarkImport(b *testing.B) {
	need.Ostree(b)
	tree, archive := b.TempDir(), filepath.Join(b.TempDir(), "archive")
	const files = 2000
	for i := range files {
		write(b, filepath.Join(tree, fmt.Sprint(i%50), fmt.Sprint(i)), strings.Repeat(fmt.Sprintf("line %d\n", i), 200))
	}
	run(b, "ostree", "init", "--repo="+archive, "--mode=archive")
	commit, err := ostree.ParseChecksum(run(b, "ostree", "commit", "--repo="+archive, "-b", "os", "--tree=dir="+tree))
	check(b, err)
	objects := (&source{t: b, repo: archive}).objects()
	for b.Loop() {
		_, err := importAll(b, newRepo(b), commit, objects, "ref")
		check(b, err)
	}
	b.ReportMetric(float64(files*b.N)/b.Elapsed().Seconds(), "files/s")
}
