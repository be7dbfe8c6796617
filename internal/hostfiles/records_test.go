package hostfiles_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
)

// record is one of the records with a format that a machine keeps, with the functions by which
// the rest of the program reads and writes it.
type record struct {
	name string
	max  int64
	read func(t *testing.T, root string) error
	// write writes the record, whatever is there.
	write func(t *testing.T, root string) error
	// path returns where it is, after write.
	path   func(root string) string
	remedy string // its beginning
}

func records() []record {
	at := func(path string) func(string) string {
		return func(root string) string { return filepath.Join(root, path) }
	}
	project := func(t *testing.T, root string) error {
		p := projection.Projector{Root: root, Disk: hostfiles.OS{}, Note: func(note string) { t.Log(note) }}
		_, err := p.Project()
		return err
	}
	return []record{
		{
			name: "journal", path: at("/var/lib/pivot/journal.json"), remedy: "move the file away to start over",
			read: func(_ *testing.T, root string) error { _, err := pivot.JournalIn(root).Load(); return err },
			write: func(_ *testing.T, root string) error {
				return pivot.JournalIn(root).Save(pivot.JournalContent{Phase: pivot.PhaseDone})
			},
		},
		{
			name: "journal of a live change", path: at(day2.LiveJournalPath), max: 32 << 20, remedy: "move the file away, then apply the MachineConfig again",
			read: func(t *testing.T, root string) error { _, err := changer(root, nil).Finish(t.Context()); return err },
			write: func(t *testing.T, root string) error {
				killed := errors.New("killed before its end")
				err := changer(root, killed).Apply(t.Context(), day2.LiveChange{Record: hostfiles.NewFile("/etc/pivot/machineconfig.json", 0o600, []byte("{}"))})
				if errors.Is(err, killed) {
					return nil
				}
				return err
			},
		},
		{name: "record of what is projected", path: at(projection.RecordPath), remedy: "move the file away", read: project, write: project},
		{
			name: "manifest of what is carried", path: at(projection.ManifestPath), remedy: "go back to the system before",
			read: func(_ *testing.T, root string) error { _, err := projection.Read(root); return err },
		},
		{
			name: "manifest of what a repair has found", remedy: "move the directory away", read: keep, write: keep,
			path: func(root string) string {
				sets, _ := filepath.Glob(filepath.Join(root, day2.FoundDir, "2*", day2.FoundManifestName))
				return sets[len(sets)-1]
			},
		},
	}
}

// changer returns what changes a running system. stopped stops each change before its journal is removed.
func changer(root string, stopped error) *day2.LiveRunner {
	return &day2.LiveRunner{Root: root, Disk: hostfiles.OS{}, Note: func(string) {}, Arrived: func(day2.LiveChange) error { return stopped }}
}

// keep keeps what a repair has found.
func keep(_ *testing.T, root string) error {
	things := day2.NewFoundThings()
	if err := things.Add(day2.FoundThing{Path: "/etc/gone"}); err != nil {
		return err
	}
	_, err := day2.FoundKeeper{Root: root, Disk: hostfiles.OS{}, Now: time.Now}.Keep(things)
	return err
}

// machineWithRecords returns the root directory of a machine that has each of the records.
func machineWithRecords(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	carried, err := projection.Set{}.Carry([]hostfiles.File{hostfiles.NewFile("/var/x", 0o600, []byte("x"))})
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, "/var/lib"), 0o755)
	}
	for _, f := range carried {
		if err == nil {
			err = errors.Join(hostfiles.MakeDir(hostfiles.OS{}, filepath.Dir(filepath.Join(root, f.Path)), 0o755), hostfiles.OS{}.Make(filepath.Join(root, f.Path), f, ""))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records() {
		if r.write == nil {
			continue
		}
		if err := r.write(t, root); err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
	}
	return root
}

// tree returns what there is at and below a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all.WriteString(path + " " + info.Mode().String() + " " + info.ModTime().String() + "\n")
		if info.Mode().IsRegular() && info.Size() < 1<<20 {
			content, err := os.ReadFile(path)
			all.Write(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestRecords: each record in an unusable format, as a newer program's, is refused by its name, with cause and remedy.
// Both its reader and its writer refuse it, and nothing changes. One that is not there is no error.
func TestRecords(t *testing.T) {
	for _, r := range records() {
		t.Run(r.name, func(t *testing.T) {
			root := machineWithRecords(t)
			path := r.path(root)
			whole, err := os.ReadFile(path)
			if err != nil || !bytes.HasPrefix(whole, []byte("{\n  \"format\": ")) {
				t.Fatalf("%v: %s", err, whole)
			}
			if err := r.read(t, root); err != nil {
				t.Errorf("as it was written: %v", err)
			}
			put := func(content []byte) func() error { return func() error { return os.WriteFile(path, content, 0o600) } }
			format := func(number string) func() error {
				return put(append([]byte("{\"format\":"+number+",\"was\":"), append(whole, '}')...))
			}
			for what, c := range map[string]struct {
				put  func() error
				want string
			}{
				"empty":          {put(nil), "unexpected end"},
				"truncated":      {put(whole[:len(whole)/2]), "unexpected end"},
				"zeros":          {put(make([]byte, len(whole))), "invalid character"},
				"a list":         {put([]byte("[1]")), "cannot unmarshal array"},
				"a newer format": {format("99"), "its format is 99, this program knows those up to "},
				"an older one":   {format("0"), "its format is 0, this program knows only "},
				"a directory":    {func() error { return os.Mkdir(path, 0o700) }, "not a regular file"},
				"a FIFO":         {func() error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
				"a link": {func() error {
					return errors.Join(os.WriteFile(root+"/elsewhere", whole, 0o600), os.Symlink(root+"/elsewhere", path))
				}, "a symbolic link"},
				"a link to nothing": {func() error { return os.Symlink("nothing", path) }, "a symbolic link"},
				"too large": {func() error {
					return errors.Join(os.WriteFile(path, whole, 0o600), os.Truncate(path, max(hostfiles.MaxState, r.max)+1))
				}, "more than "},
			} {
				if err := errors.Join(os.RemoveAll(path), c.put()); err != nil {
					t.Fatal(err)
				}
				before := tree(t, root)
				for does, call := range map[string]func(*testing.T, string) error{"read": r.read, "write": r.write} {
					if call == nil {
						continue
					}
					err := call(t, root)
					named := err != nil && strings.Contains(err.Error(), "cannot use ") && strings.Contains(err.Error(), strings.TrimPrefix(path, root)+": ")
					if !named || !strings.Contains(err.Error(), c.want) || fault.KindOf(err) != fault.Refused || !strings.HasPrefix(fault.HintOf(err), r.remedy) {
						t.Errorf("%s, %s: %v, hint %q; want the path, %q and the remedy", what, does, err, fault.HintOf(err), c.want)
					}
					if after := tree(t, root); after != before {
						t.Errorf("%s, %s: there was\n%s\nthere is\n%s", what, does, before, after)
					}
				}
			}
			if err := errors.Join(os.RemoveAll(path), r.read(t, root)); err != nil {
				t.Errorf("nothing there: %v", err)
			}
		})
	}
}
