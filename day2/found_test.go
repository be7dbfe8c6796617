package day2_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// dying is a disk on which the process dies before a given effect.
type dying struct {
	hostfiles.OS
	left *int
}

type died struct{}

func (d dying) effect() {
	if *d.left--; *d.left < 0 {
		panic(died{})
	}
}

func (d dying) Mkdir(path string, mode fs.FileMode) error { d.effect(); return d.OS.Mkdir(path, mode) }
func (d dying) Write(path string, content []byte, mode fs.FileMode) error {
	d.effect()
	return d.OS.Write(path, content, mode)
}
func (d dying) Sync(path string) error       { d.effect(); return d.OS.Sync(path) }
func (d dying) Rename(from, to string) error { d.effect(); return d.OS.Rename(from, to) }
func (d dying) Remove(path string) error     { d.effect(); return d.OS.Remove(path) }

// machine saves sets at a time that the test can set.
type machine struct {
	day2.FoundKeeper
	t   *testing.T
	now time.Time
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, now: time.Date(2026, 11, 22, 20, 45, 30, 0, time.UTC)}
	m.FoundKeeper = day2.FoundKeeper{Root: t.TempDir(), Disk: hostfiles.OS{}, Now: func() time.Time { return m.now }}
	return m
}

func (m *machine) keep(things ...day2.FoundThing) (dir string) {
	m.t.Helper()
	all, err := collect(things...)
	if err != nil {
		m.t.Fatal(err)
	}
	dir, err = m.Keep(all)
	if err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// collect returns a collection of things.
func collect(things ...day2.FoundThing) (*day2.FoundThings, error) {
	all := day2.NewFoundThings()
	for _, thing := range things {
		if err := all.Add(thing); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func file(content string) day2.FoundThing {
	f := hostfiles.NewFile("/etc/file", 0o640, []byte(content))
	f.UID = 7
	return day2.FoundThing{Path: f.Path, File: &f}
}

// sets returns the names of the saved sets.
func (m *machine) sets() (names []string) {
	m.t.Helper()
	all, err := filepath.Glob(filepath.Join(m.Root, day2.FoundDir, "2*"))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, name := range all {
		names = append(names, filepath.Base(name))
	}
	return names
}

// TestKeepFound (P68): everything known about what was found is saved, readable by root only.
func TestKeepFound(t *testing.T) {
	m := newMachine(t)
	link, dir, password := hostfiles.NewLink("/etc/link", "else"), hostfiles.NewDirectory("/etc/dir", 0o711), hostfiles.NewPassword("core", "$y$hash")
	kept := m.keep(file("mine"), day2.FoundThing{Path: "/etc/gone"}, day2.FoundThing{Path: link.Path, File: &link}, day2.FoundThing{Path: dir.Path, File: &dir}, day2.FoundThing{Path: password.Path, File: &password})
	if kept != "/var/lib/pivot/found/20261122T204530Z" {
		t.Errorf("kept in %s", kept)
	}
	var manifest struct {
		Format  int
		Time    time.Time
		Entries []struct {
			hostfiles.Entry
			Missing bool
		}
	}
	data, err := os.ReadFile(filepath.Join(m.Root, kept, day2.FoundManifestName))
	if err == nil {
		err = json.Unmarshal(data, &manifest)
	}
	if err != nil || !manifest.Time.Equal(m.now) || len(manifest.Entries) != 5 {
		t.Fatalf("%v: %s", err, data)
	}
	for i, want := range []hostfiles.Entry{dir.Entry, file("mine").File.Entry, {Path: "/etc/gone"}, link.Entry, password.Entry} {
		if got := manifest.Entries[i]; got.Entry != want || got.Missing != (want.Path == "/etc/gone") {
			t.Errorf("entry %d is %+v, want %+v", i, got, want)
		}
	}
	content := filepath.Join(m.Root, kept, strings.TrimPrefix(string(hostfiles.DigestOf([]byte("mine"))), "sha256:"))
	if got, err := os.ReadFile(content); string(got) != "mine" {
		t.Errorf("content %s, %v", got, err)
	}
	for name, want := range map[string]fs.FileMode{day2.FoundDir: 0o700, kept: 0o700, kept + "/" + day2.FoundManifestName: 0o600} {
		if info, err := os.Stat(filepath.Join(m.Root, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	// An equal set is not saved twice; a different one in the same second is.
	same := m.keep(day2.FoundThing{Path: "/etc/gone"}, file("mine"), day2.FoundThing{Path: link.Path, File: &link}, day2.FoundThing{Path: dir.Path, File: &dir}, day2.FoundThing{Path: password.Path, File: &password})
	if other := m.keep(file("other")); same != kept || other != kept+"-02" || len(m.sets()) != 2 {
		t.Errorf("the same in %s, another in %s: %v", same, other, m.sets())
	}
}

// TestKeepFoundBounds (P68): the oldest sets are removed by number and by size. A set that is too
// large by itself is refused, and nothing is written.
func TestKeepFoundBounds(t *testing.T) {
	m := newMachine(t)
	for n := range 20 {
		m.now = m.now.Add(time.Minute)
		m.keep(file(fmt.Sprint(n)))
	}
	if sets := m.sets(); len(sets) != 16 || sets[15] != m.now.Format("20060102T150405Z") {
		t.Errorf("%d: %v", len(sets), sets)
	}
	for n := range 5 {
		m.now = m.now.Add(time.Minute)
		m.keep(file(fmt.Sprint(n) + string(bytes.Repeat([]byte("x"), 15<<20))))
	}
	if sets := m.sets(); len(sets) != 4 {
		t.Errorf("%d: %v", len(sets), sets)
	}
	before := m.sets()
	large := file(string(make([]byte, 33<<20)))
	if _, err := collect(large, large); fault.KindOf(err) != fault.BadInput || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "more than 67108864 bytes of files") {
		t.Errorf("too large: %v", err)
	}
	if _, err := collect(slices.Repeat([]day2.FoundThing{{Path: "/etc/gone"}}, 10_001)...); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "more than 10000 entries") {
		t.Errorf("too many: %v", err)
	}
	if got := m.sets(); !slices.Equal(got, before) {
		t.Errorf("sets %v, want %v", got, before)
	}
}

// TestKeepFoundWithoutContent: a file that is too large to be read is kept by its attributes only if
// it stays on the disk, and never as an empty content.
func TestKeepFoundWithoutContent(t *testing.T) {
	m := newMachine(t)
	large := file("")
	large.File.Content, large.File.Digest = nil, hostfiles.TooLarge
	if _, err := collect(large); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "/etc/file: it is too large") {
		t.Errorf("it would be lost: %v", err)
	}
	large.Stays = true
	kept := m.keep(large)
	// A user's file beyond the limit does not stop a repair.
	user := file(string(make([]byte, 33<<20)))
	user.OfUsers = true
	m.now = m.now.Add(time.Minute)
	m.keep(user, user)
	files, err := os.ReadDir(filepath.Join(m.Root, kept))
	if err != nil || len(files) != 1 || files[0].Name() != day2.FoundManifestName {
		t.Errorf("kept %v, %v, want only the manifest", files, err)
	}
}

// recorder is a Disk that records what is removed and what is synced, in order.
type recorder struct {
	hostfiles.OS
	removed, synced *[]string
}

func (r recorder) Remove(path string) error {
	*r.removed = append(*r.removed, path)
	return r.OS.Remove(path)
}

func (r recorder) Sync(path string) error {
	*r.synced = append(*r.synced, path)
	return r.OS.Sync(path)
}

// TestKeepFoundRemovesManifestFirst (P68): a set that is removed loses its manifest before any of
// its contents, however many there are.
func TestKeepFoundRemovesManifestFirst(t *testing.T) {
	for _, contents := range []int{1, 12, 19, 40} {
		m := newMachine(t)
		var removed, synced []string
		m.Disk = recorder{removed: &removed, synced: &synced}
		things := make([]day2.FoundThing, contents)
		for i := range things {
			things[i] = file(fmt.Sprint("content ", i))
		}
		for set := range 17 { // one more than are kept
			things[0] = file(fmt.Sprint("set ", set))
			m.keep(things...)
			m.now = m.now.Add(time.Minute)
		}
		if len(removed) < contents+2 || filepath.Base(removed[0]) != day2.FoundManifestName {
			t.Errorf("with %d contents these were removed: %q", contents, removed)
		}
	}
}

// TestKeepFoundKilled (P68): a process killed at any effect leaves only complete sets under their
// names and keeps the earlier ones. The next run leaves nothing else behind.
func TestKeepFoundKilled(t *testing.T) {
	for n := 0; ; n++ {
		m := newMachine(t)
		before := m.keep(file("before"))
		left := n
		m.Disk, m.now = dying{left: &left}, m.now.Add(time.Minute)
		if !dies(func() { m.keep(file("found"), day2.FoundThing{Path: "/etc/gone"}) }) {
			if n < 8 {
				t.Errorf("it died %d times", n)
			}
			return
		}
		for _, name := range m.sets() {
			files, err := os.ReadDir(filepath.Join(m.Root, day2.FoundDir, name))
			if err != nil || len(files) != 2 {
				t.Errorf("killed before effect %d: %s has %v, %v", n, name, files, err)
			}
		}
		var removed, synced []string
		m.Disk = recorder{removed: &removed, synced: &synced}
		m.now = m.now.Add(time.Minute)
		if after := m.keep(file("found"), day2.FoundThing{Path: "/etc/gone"}); after == before || len(m.sets()) != 2 {
			t.Errorf("killed before effect %d: %v", n, m.sets())
		}
		if dir := filepath.Join(m.Root, day2.FoundDir); !slices.Contains(synced, dir) {
			t.Errorf("killed before effect %d: the next run does not sync %s, but %q", n, dir, synced)
		}
		if all, err := os.ReadDir(filepath.Join(m.Root, day2.FoundDir)); err != nil || len(all) != 2 {
			t.Errorf("killed before effect %d: %v is left, %v", n, all, err)
		}
	}
}

func dies(work func()) (dead bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, expected := r.(died); !expected {
				panic(r)
			}
			dead = true
		}
	}()
	work()
	return false
}
