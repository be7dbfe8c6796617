package projection_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/projection"
	"machine-pivot/test/tools/need"
)

// system is the root directory of a machine that can boot different deployments.
type system struct {
	t      *testing.T
	root   string
	before projection.Set // of the deployment from which the next ones are made
	notes  []string
}

func newSystem(t *testing.T, files ...hostfiles.File) *system {
	need.Root(t)
	s := &system{t: t, root: t.TempDir()}
	for _, dir := range []string{"etc", "usr/lib", "var/lib"} {
		s.must(os.MkdirAll(filepath.Join(s.root, dir), 0o755))
	}
	s.must(os.WriteFile(filepath.Join(s.root, "etc/passwd"), []byte("core:x:1000:1001::/home/core:/bin/sh\n"), 0o644))
	s.must(os.WriteFile(filepath.Join(s.root, "etc/group"), []byte("core:x:1001:\n"), 0o644))
	for _, f := range files {
		s.put(f)
	}
	return s
}

func (s *system) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// put puts an entry into the system, as an administrator would, replacing what is there.
func (s *system) put(f hostfiles.File) {
	s.t.Helper()
	name := filepath.Join(s.root, f.Path)
	s.must(os.MkdirAll(filepath.Dir(name), 0o755))
	_ = os.Remove(name)
	s.must(hostfiles.OS{}.Make(name, f, ""))
}

// boot boots a deployment that carries files, and projects them.
func (s *system) boot(files ...hostfiles.File) ([]string, error) {
	s.t.Helper()
	s.must(os.RemoveAll(filepath.Join(s.root, projection.Dir)))
	carriers, err := s.before.Carry(files)
	s.must(err)
	for _, f := range carriers {
		if f.Kind == hostfiles.KindFile {
			s.put(f)
		}
	}
	return s.project()
}

func (s *system) project() ([]string, error) {
	s.notes = nil
	p := projection.Projector{Root: s.root, Disk: hostfiles.OS{}, Note: func(text string) { s.notes = append(s.notes, text) }}
	return p.Project()
}

// tree describes everything in /var except pivot's files, one line per entry.
func (s *system) tree() []string {
	s.t.Helper()
	var lines []string
	s.must(filepath.WalkDir(filepath.Join(s.root, "var"), func(name string, _ fs.DirEntry, err error) error {
		at := strings.TrimPrefix(name, s.root)
		if err != nil || at == "/var" || at == "/var/lib" {
			return err
		}
		if at == "/var/lib/pivot" {
			return fs.SkipDir
		}
		f, _, err := hostfiles.Read(s.root, at)
		lines = append(lines, describe(f))
		return err
	}))
	slices.Sort(lines)
	return lines
}

func describe(f hostfiles.File) string {
	return fmt.Sprintf("%s: %s %q", f.Path, f.Entry, f.Content)
}

func owned(f hostfiles.File, uid, gid int) hostfiles.File {
	f.UID, f.GID = uid, gid
	return f
}

// before returns what the machine of TestSwitches has in /var before any projection.
func before() []hostfiles.File {
	return []hostfiles.File{
		hostfiles.NewDirectory("/var/data", 0o750),
		owned(hostfiles.NewFile("/var/data/own", 0o640, []byte("own")), 7, 8),
		hostfiles.NewLink("/var/data/link", "own"),
		owned(hostfiles.NewDirectory("/var/empty", 0o711), 3, 4),
	}
}

// randomSet returns a random set of entries. Some replace what the machine has.
func randomSet(r *rand.Rand) map[string]hostfiles.File {
	set := map[string]hostfiles.File{}
	for _, name := range []string{"/var/data/own", "/var/data/link", "/var/data/new", "/var/a/b/c", "/var/a/b", "/var/a/d", "/var/empty", "/var/e"} {
		n := r.IntN(3)
		f := owned(hostfiles.NewFile(name, []fs.FileMode{0o600, 0o644, 0o755}[n], fmt.Append(nil, "asked ", n)), n, 0)
		switch r.IntN(6) {
		case 0, 1:
		case 2:
			f = hostfiles.NewLink(name, fmt.Sprint("to", n))
		case 3:
			if name == "/var/data/own" || name == "/var/data/link" {
				f = hostfiles.NewDirectory(name, 0o700)
			}
		default:
			continue
		}
		if name == "/var/a/b" {
			f = owned(hostfiles.NewDirectory(name, 0o770), n, n)
		}
		set[name] = f
	}
	return set
}

// shows returns the tree that is expected with a set: what the machine had, the set on top, and
// missing parent directories.
func shows(had []hostfiles.File, set map[string]hostfiles.File) []string {
	all := map[string]hostfiles.File{}
	for _, f := range had {
		all[f.Path] = f
	}
	for name, f := range set {
		all[name] = f
	}
	for name := range set {
		for dir := filepath.Dir(name); dir != "/var"; dir = filepath.Dir(dir) {
			if _, there := all[dir]; !there {
				all[dir] = hostfiles.NewDirectory(dir, 0o755)
			}
		}
	}
	var lines []string
	for _, f := range all {
		lines = append(lines, describe(f))
	}
	slices.Sort(lines)
	return lines
}

// TestSwitches (P57): whatever deployments a machine boots in turn, forward and back, /var has
// what the running one requests, and otherwise what was there before.
func TestSwitches(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 57))
		s := newSystem(t, before()...)
		sets := []map[string]hostfiles.File{randomSet(r), randomSet(r), {}, randomSet(r)}
		for range 8 {
			set := sets[r.IntN(len(sets))]
			var files []hostfiles.File
			for _, f := range set {
				files = append(files, f)
			}
			if _, err := s.boot(files...); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if got, want := s.tree(), shows(before(), set); !slices.Equal(got, want) {
				t.Fatalf("seed %d: /var has\n%s\nwant\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if changed, err := s.project(); err != nil || len(changed) > 0 || len(s.notes) > 0 {
				t.Fatalf("seed %d: the same again changes %q, %v, %q", seed, changed, err, s.notes)
			}
		}
		if _, err := s.boot(); err != nil || !slices.Equal(s.tree(), shows(before(), nil)) {
			t.Fatalf("seed %d: at the end /var has\n%s\n%v", seed, strings.Join(s.tree(), "\n"), err)
		}
		if left, err := filepath.Glob(filepath.Join(s.root, "var/lib/pivot/projection/*/*")); err != nil || len(left) > 0 {
			t.Errorf("seed %d: there is left %q, %v", seed, left, err)
		}
		if _, err := os.Lstat(filepath.Join(s.root, projection.RecordPath)); err == nil {
			t.Errorf("seed %d: there is a record of nothing", seed)
		}
	}
}

// TestOfSomebody (P57): an administrator's change is not overwritten by each boot. It stays when
// nothing requests the entry any more, and a note says so.
func TestOfSomebody(t *testing.T) {
	s := newSystem(t)
	asked := []hostfiles.File{hostfiles.NewFile("/var/d/file", 0o644, []byte("asked")), hostfiles.NewDirectory("/var/d", 0o700), hostfiles.NewFile("/var/gone", 0o644, nil)}
	_, err := s.boot(asked...)
	s.must(err)
	s.put(hostfiles.NewFile("/var/d/file", 0o644, []byte("mine")))
	s.must(os.Remove(filepath.Join(s.root, "var/gone")))
	if changed, err := s.boot(asked...); err != nil || len(changed) > 0 {
		t.Errorf("changed %q, %v", changed, err)
	}
	if changed, err := s.boot(); err != nil || len(changed) > 0 {
		t.Errorf("changed %q, %v", changed, err)
	}
	want := []string{"file /var/d/file stays, though no MachineConfig asks for it any more: somebody has changed it", "directory /var/d stays, though no MachineConfig asks for it any more: there is more in it"}
	if !slices.Equal(s.notes, want) {
		t.Errorf("notes %q, want %q", s.notes, want)
	}
	if changed, err := s.boot(asked...); err != nil || !slices.Equal(changed, []string{"/var/d/file", "/var/gone"}) {
		t.Errorf("changed %q, %v", changed, err)
	}
	// Another deployment is made from this one and requests the same: it gets that, as below /etc.
	s.put(hostfiles.NewFile("/var/d/file", 0o644, []byte("mine again")))
	if s.before, err = projection.Read(s.root); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.boot(asked...); err != nil || !slices.Equal(changed, []string{"/var/d/file"}) {
		t.Errorf("changed %q, %v", changed, err)
	}
	if _, err := s.boot(); err != nil || !slices.Contains(s.tree(), describe(hostfiles.NewFile("/var/d/file", 0o644, []byte("mine")))) {
		t.Errorf("/var has %q, %v", s.tree(), err)
	}
}

// TestAdopted (P57): an entry that is already as requested, as Ignition leaves it on a first
// boot, is no change. It is removed when it is no longer requested, except for a directory.
func TestAdopted(t *testing.T) {
	file, dir := hostfiles.NewFile("/var/home/core/key", 0o600, []byte("key")), hostfiles.NewDirectory("/var/home/core", 0o700)
	s := newSystem(t, owned(dir, 1000, 1001), owned(file, 1000, 1001))
	file.User, file.Group, dir.User, dir.Group = "core", "core", "core", "core"
	if changed, err := s.boot(file, dir); err != nil || len(changed) > 0 {
		t.Errorf("changed %q, %v", changed, err)
	}
	want := []string{"/var/home/core: directory with mode 0700 and owner 1000:1001 \"\"", "/var/home: directory with mode 0755 and owner 0:0 \"\""}
	if changed, err := s.boot(); err != nil || !slices.Equal(changed, []string{file.Path}) || !slices.Equal(s.tree(), want) {
		t.Errorf("changed %q, %v, there is %q", changed, err, s.tree())
	}
}

// TestNotRedirected (P57): the owner of a directory on the way to an entry cannot use symbolic
// links to have anything outside of it written, removed or read.
func TestNotRedirected(t *testing.T) {
	outside := hostfiles.NewFile("/etc/outside/keys", 0o600, []byte("outside"))
	s := newSystem(t, hostfiles.NewDirectory("/var/home", 0o755), outside)
	key := hostfiles.NewFile("/var/home/core/.ssh/keys", 0o644, []byte("key"))
	s.must(os.Mkdir(filepath.Join(s.root, "var/home/core"), 0o755))
	link := filepath.Join(s.root, "var/home/core/.ssh")
	s.must(os.Symlink(filepath.Join(s.root, "etc/outside"), link))
	unchanged := func(when string) {
		t.Helper()
		if f, _, err := hostfiles.Read(s.root, outside.Path); err != nil || describe(f) != describe(outside) {
			t.Errorf("%s: %s, %v", when, describe(f), err)
		}
	}
	for range 2 { // the second time there is a record
		_, err := s.boot(key, hostfiles.NewFile("/var/other", 0o644, nil))
		if err == nil || !strings.Contains(err.Error(), "cannot project /var/home/core/.ssh/keys: /var/home/core/.ssh: a symbolic link, which is not followed") {
			t.Errorf("error %v", err)
		}
		unchanged("a link on the way")
	}
	if _, err := os.Stat(filepath.Join(s.root, "var/other")); err != nil {
		t.Error("one that cannot be keeps the others out")
	}
	s.must(os.Remove(link))
	_, err := s.boot(key)
	s.must(err)
	s.must(os.RemoveAll(link))
	s.must(os.Symlink(filepath.Join(s.root, "etc/outside"), link))
	if _, err := s.boot(); err == nil {
		t.Error("a link on the way is not named")
	}
	unchanged("taken back")
	if v, err := projection.Observe(s.root, []string{key.Path}); err != nil || len(v.Entries) > 0 {
		t.Errorf("seen behind a link: %v, %v", v.Entries, err)
	}
	s.must(os.Remove(link))
	s.must(os.Mkdir(link, 0o755))
	s.must(os.Symlink(filepath.Join(s.root, outside.Path), filepath.Join(link, "keys")))
	if _, err = s.boot(key); err != nil {
		t.Error(err)
	}
	unchanged("a link at the entry")
}

// TestCannotBe (P57): an entry that cannot be projected is named in the error, does not affect
// the others, and is tried again by the next boot.
func TestCannotBe(t *testing.T) {
	s := newSystem(t, hostfiles.NewDirectory("/var/full", 0o755), hostfiles.NewFile("/var/full/own", 0o644, nil), hostfiles.NewFile("/var/file", 0o644, nil))
	s.must(unix.Mkfifo(filepath.Join(s.root, "var/fifo"), 0o600))
	had := s.tree()
	file := func(name string) hostfiles.File { return hostfiles.NewFile(name, 0o600, []byte("x")) }
	unowned := file("/var/unowned")
	unowned.User = "nobody-knows"
	all := []hostfiles.File{file("/var/full"), file("/var/fifo"), file("/var/file/below"), unowned, file("/var/fine")}
	for range 2 {
		_, err := s.boot(all...)
		for _, want := range []string{"cannot project /var/full: there is more in it", "cannot project /var/fifo: what stands there is no file", "cannot project /var/file/below: /var/file: not a directory", `there is no user "nobody-knows"`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
		if want := append([]string{describe(file("/var/fine"))}, had...); !slices.Equal(s.tree(), sorted(want)) {
			t.Errorf("/var has %q, want %q", s.tree(), want)
		}
	}
	s.must(os.Remove(filepath.Join(s.root, "var/full/own")))
	if changed, err := s.boot(all...); err == nil || !slices.Equal(changed, []string{"/var/full"}) {
		t.Errorf("changed %q, %v", changed, err)
	}
}

func sorted(lines []string) []string { slices.Sort(lines); return lines }

// TestRecordIsRootsOwn (P57): only root can read what was projected and replaced. A damaged
// record stops the projection.
func TestRecordIsRootsOwn(t *testing.T) {
	s := newSystem(t, hostfiles.NewFile("/var/secret", 0o600, []byte("secret")))
	_, err := s.boot(hostfiles.NewFile("/var/secret", 0o644, []byte("no secret")))
	s.must(err)
	found := 0
	s.must(filepath.WalkDir(filepath.Join(s.root, "var/lib/pivot/projection"), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		found++
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
		return err
	}))
	if found != 4 {
		t.Errorf("there are %d files", found)
	}
	for _, text := range []string{"{", `{"format":2}`, `{"format":1,"items":[{"path":"/var/x"}]}`} {
		s.must(os.WriteFile(filepath.Join(s.root, projection.RecordPath), []byte(text), 0o600))
		if _, err := s.project(); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestObserve (P57): what a path has, and what it would have without a MachineConfig.
func TestObserve(t *testing.T) {
	own := hostfiles.NewFile("/var/own", 0o640, []byte("own"))
	s := newSystem(t, own, hostfiles.NewFile("/var/other", 0o644, nil))
	file := func(name string) hostfiles.File { return hostfiles.NewFile(name, 0o600, []byte("x")) }
	_, err := s.boot(file("/var/own"), file("/var/new"), file("/var/changed"))
	s.must(err)
	mine := hostfiles.NewFile("/var/changed", 0o600, []byte("mine"))
	s.put(mine)
	v, err := projection.Observe(s.root, []string{"/var/own", "/var/new", "/var/changed", "/var/other", "/var/none"})
	s.must(err)
	if len(v.Entries) != 4 || v.Entries["/var/own"] != file("/var/own").Entry || v.Entries["/var/changed"] != mine.Entry {
		t.Errorf("there is %v", v.Entries)
	}
	if len(v.Without) != 3 || v.Without["/var/own"] != own.Entry || v.Without["/var/changed"] != mine.Entry || v.Without["/var/other"] != v.Entries["/var/other"] {
		t.Errorf("without: %v", v.Without)
	}
}

// TestLabels (P57): what is projected or restored gets its label from the running policy, not
// from its directory.
func TestLabels(t *testing.T) {
	s := newSystem(t, hostfiles.NewFile("/var/opt/own", 0o644, []byte("own")))
	for name, text := range map[string]string{
		"sys/fs/selinux/enforce": "1", "etc/selinux/config": "SELINUX=enforcing\nSELINUXTYPE=small\n",
		"etc/selinux/small/contexts/files/file_contexts":           "/opt(/.*)? system_u:object_r:usr_t:s0\n/opt/link -l system_u:object_r:link_t:s0\n",
		"etc/selinux/small/contexts/files/file_contexts.subs_dist": "/var/opt /opt\n",
	} {
		s.put(hostfiles.NewFile("/"+name, 0o644, []byte(text)))
	}
	label := func(name string) string {
		t.Helper()
		label, err := hostfiles.LabelOf(filepath.Join(s.root, name))
		s.must(err)
		return label
	}
	_, err := s.boot(hostfiles.NewFile("/var/opt/own", 0o600, nil), hostfiles.NewLink("/var/opt/link", "own"), hostfiles.NewFile("/var/opt/dir/x", 0o600, nil), hostfiles.NewFile("/var/none", 0o600, nil))
	s.must(err)
	for name, want := range map[string]string{"own": "usr_t", "link": "link_t", "dir": "usr_t", "dir/x": "usr_t"} {
		if got := label("var/opt/" + name); got != "system_u:object_r:"+want+":s0" {
			t.Errorf("%s has the label %q, want %s", name, got, want)
		}
	}
	if got := label("var/none"); got != "" {
		t.Errorf("what the policy has no label for has %q", got)
	}
	_, err = s.boot()
	s.must(err)
	if got := label("var/opt/own"); !strings.Contains(got, "usr_t") {
		t.Errorf("what is put back has the label %q", got)
	}
}

// halfMade is a Disk that kills its process after it has made a directory, before that has its mode. After that it
// records what is synced.
type halfMade struct {
	hostfiles.OS
	dies   bool
	synced *[]string
}

type died struct{}

func (d halfMade) Make(path string, f hostfiles.File, label string) error {
	if d.dies && f.Kind == hostfiles.KindDirectory {
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		panic(died{})
	}
	return d.OS.Make(path, f, label)
}

func (d halfMade) Sync(path string) error {
	real, err := filepath.EvalSymlinks(path)
	*d.synced = append(*d.synced, real)
	return errors.Join(err, d.OS.Sync(path))
}

// TestHalfMadeDirectory: the name of a directory that a killed run has made, but not
// finished, is made durable by the next run.
func TestHalfMadeDirectory(t *testing.T) {
	s := newSystem(t)
	carriers, err := s.before.Carry([]hostfiles.File{hostfiles.NewFile("/var/app/conf", 0o644, []byte("conf"))})
	s.must(err)
	for _, f := range carriers {
		if f.Kind == hostfiles.KindFile {
			s.put(f)
		}
	}
	var synced []string
	project := func(dies bool) {
		defer func() {
			if r := recover(); r != nil && r != any(died{}) {
				panic(r)
			}
		}()
		p := projection.Projector{Root: s.root, Disk: halfMade{dies: dies, synced: &synced}, Note: func(string) {}}
		_, err := p.Project()
		s.must(err)
	}
	project(true)
	if _, err := os.Stat(filepath.Join(s.root, "var/app")); err != nil {
		t.Fatal(err)
	}
	synced = nil
	project(false)
	if want := filepath.Join(s.root, "var"); !slices.Contains(synced, want) {
		t.Errorf("%s is not synced, but %q", want, synced)
	}
}

// TestManyTakenBack: entries are taken back bottom-up and before anything is put, however many there are.
func TestManyTakenBack(t *testing.T) {
	s := newSystem(t)
	var files []hostfiles.File
	for i := range 40 {
		dir := fmt.Sprintf("/var/d%d/e%d/f%d", i%3, i%5, i%7)
		files = append(files, hostfiles.NewFile(fmt.Sprintf("%s/g%d", dir, i), 0o644, []byte("asked")))
	}
	next := []hostfiles.File{hostfiles.NewFile("/var/d0", 0o644, nil), hostfiles.NewFile("/var/d1/e1", 0o644, nil), hostfiles.NewFile("/var/a/b/c", 0o644, nil)}
	set := map[string]hostfiles.File{}
	for _, f := range next {
		set[f.Path] = f
	}
	for range 3 { // the order of a map is another one each time
		if _, err := s.boot(files...); err != nil {
			t.Fatal(err)
		}
		if _, err := s.boot(next...); err != nil || !slices.Equal(s.tree(), shows(nil, set)) || len(s.notes) > 0 {
			t.Fatalf("/var has\n%s\n%v, %q", strings.Join(s.tree(), "\n"), err, s.notes)
		}
		if _, err := s.boot(files...); err != nil {
			t.Fatal(err)
		}
		if _, err := s.boot(); err != nil || len(s.tree()) > 0 || len(s.notes) > 0 {
			t.Fatalf("/var has\n%s\n%v, %q", strings.Join(s.tree(), "\n"), err, s.notes)
		}
	}
}

// TestNotTakenBack: a step that fails has to be repeated, also one that takes something back, and Settled says so.
// Meanwhile another deployment may request the same: what the paths had before the first projection is still known.
func TestNotTakenBack(t *testing.T) {
	var had, asked []hostfiles.File
	for _, dir := range []string{"a", "b", "c"} {
		had = append(had, hostfiles.NewDirectory("/var/"+dir, 0o755), hostfiles.NewFile("/var/"+dir+"/x", 0o600, []byte("own")))
		asked = append(asked, hostfiles.NewFile("/var/"+dir+"/x", 0o644, []byte("asked")))
	}
	s := newSystem(t, had...)
	settled := func(want bool) {
		t.Helper()
		if got, err := projection.Settled(s.root); err != nil || got != want {
			t.Errorf("settled: %v, %v", got, err)
		}
	}
	move := func(from, to string) {
		t.Helper()
		for _, dir := range []string{"a", "b", "c"} {
			s.must(os.Rename(filepath.Join(s.root, "var", dir+from), filepath.Join(s.root, "var", dir+to)))
		}
	}
	settled(true)
	_, err := s.boot(asked...)
	s.must(err)
	settled(true)
	move("", ".away")
	for _, dir := range []string{"a", "b", "c"} {
		s.must(os.Symlink(dir+".away", filepath.Join(s.root, "var", dir)))
	}
	if _, err := s.boot(); err == nil {
		t.Fatal("there is a link on the way")
	}
	settled(false)
	for _, dir := range []string{"a", "b", "c"} {
		s.must(os.Remove(filepath.Join(s.root, "var", dir)))
	}
	move(".away", "")
	_, err = s.boot(asked...)
	s.must(err)
	settled(true)
	_, err = s.boot()
	s.must(err)
	settled(true)
	if !slices.Equal(s.tree(), shows(had, nil)) {
		t.Errorf("/var has\n%s", strings.Join(s.tree(), "\n"))
	}
}

// refusing is a Disk that makes nothing.
type refusing struct{ hostfiles.OS }

func (refusing) Make(string, hostfiles.File, string) error { return errors.New("no room") }

// TestPutBackByHand: what was projected once, and is not there any more when something else is projected, is an
// administrator's if it comes back.
func TestPutBackByHand(t *testing.T) {
	file := func(text string) hostfiles.File { return hostfiles.NewFile("/var/file", 0o644, []byte(text)) }
	s := newSystem(t)
	_, err := s.boot(file("first"))
	s.must(err)
	s.put(file("by hand"))
	carriers, err := s.before.Carry([]hostfiles.File{file("second")})
	s.must(err)
	for _, f := range carriers {
		if f.Kind == hostfiles.KindFile {
			s.put(f)
		}
	}
	p := projection.Projector{Root: s.root, Disk: refusing{}, Note: func(string) {}}
	if _, err := p.Project(); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Fatal(err)
	}
	s.put(file("first"))
	if changed, err := s.boot(); err != nil || len(changed) > 0 || !slices.Equal(s.tree(), []string{describe(file("first"))}) {
		t.Errorf("changed %q, %v; /var has %q", changed, err, s.tree())
	}
}

// openFiles returns how many files this process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestPutBack: an entry outside of /etc is made again, with another content, mode or kind; nil removes it, but no
// directory with something in it. No directory stays open, of the projection neither.
func TestPutBack(t *testing.T) {
	s := newSystem(t)
	p := projection.Projector{Root: s.root, Disk: hostfiles.OS{}, Note: func(text string) { t.Error(text) }}
	open := openFiles(t)
	for i := range 20 {
		s.must(os.Mkdir(filepath.Join(s.root, "var/d"), 0o755))
		file := hostfiles.NewFile("/var/d/file", 0o600, []byte("had"))
		for _, f := range []hostfiles.File{file, file, hostfiles.NewFile("/var/d/file", 0o644, []byte("else")), hostfiles.NewLink("/var/d/file", "to"), hostfiles.NewDirectory("/var/d/file", 0o711)} {
			s.must(p.PutBack(f.Path, &f))
			if got := s.tree(); len(got) != 2 || !slices.Contains(got, describe(f)) {
				t.Fatalf("/var has %q, want %s", got, describe(f))
			}
		}
		s.must(p.PutBack("/var/d", nil))
		s.must(p.PutBack("/var/d/file", nil))
		s.must(p.PutBack("/var/d/file", nil))
		s.must(p.PutBack("/var/d", nil))
		if got := s.tree(); len(got) > 0 {
			t.Fatalf("/var has %q", got)
		}
		_, err := s.boot(hostfiles.NewFile(fmt.Sprint("/var/p/", i), 0o600, nil))
		s.must(err)
		_, err = s.boot()
		s.must(err)
	}
	if now := openFiles(t); now > open {
		t.Errorf("%d files are open, and %d were before", now, open)
	}
	unknown := hostfiles.File{Entry: hostfiles.Entry{Path: "/var/x", Kind: hostfiles.KindOther}}
	if err := p.PutBack("/var/x", &unknown); err == nil {
		t.Error("something of an unknown kind is put back")
	}
}

// TestUnreadable: a path that cannot be looked at is an error, and not one with nothing; and a record that cannot be read
// settles nothing.
func TestUnreadable(t *testing.T) {
	s := newSystem(t)
	if got, err := projection.Observe(s.root, []string{"/var/" + strings.Repeat("x", 300)}); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("observed: %v, %v", got, err)
	}
	s.put(hostfiles.NewFile(projection.RecordPath, 0o600, []byte("{")))
	if settled, err := projection.Settled(s.root); settled || err == nil {
		t.Errorf("settled: %v, %v", settled, err)
	}
}
