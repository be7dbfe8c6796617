package day2_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/hostfiles"
)

// traced is a Disk that records effects. If dies is set, its process dies when the directory of
// a journal that is in place is to be synced.
type traced struct {
	hostfiles.OS
	root    string
	dies    bool
	effects *[]string
}

type killed struct{}

func (d traced) Sync(path string) error {
	if _, err := os.Stat(d.root + day2.LiveJournalPath); d.dies && err == nil && path == filepath.Dir(d.root+day2.LiveJournalPath) {
		panic(killed{})
	}
	*d.effects = append(*d.effects, "sync "+path)
	return d.OS.Sync(path)
}

func (d traced) Rename(from, to string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(to)) // it may be that of a descriptor
	if err != nil {
		return err
	}
	*d.effects = append(*d.effects, "rename to "+filepath.Join(dir, filepath.Base(to)))
	return d.OS.Rename(from, to)
}

// TestLiveJournalOfKilledRun: the next run makes a journal durable that a killed run has renamed
// into place, before it changes anything. Otherwise a power cut could lose the journal and leave
// half of the change.
func TestLiveJournalOfKilledRun(t *testing.T) {
	root := t.TempDir()
	conf := filepath.Join(root, "etc/conf")
	for dir, mode := range map[string]os.FileMode{"etc": 0o755, "etc/pivot": 0o755} {
		must(t, os.MkdirAll(filepath.Join(root, dir), mode))
	}
	must(t, os.WriteFile(conf, []byte("old"), 0o644))
	before, after := hostfiles.NewFile("/etc/conf", 0o644, []byte("old")), hostfiles.NewFile("/etc/conf", 0o644, []byte("new"))
	var effects []string
	runner := func(dies bool) *day2.LiveRunner {
		return &day2.LiveRunner{
			Root: root, Disk: traced{root: root, dies: dies, effects: &effects}, Note: func(string) {},
			Arrived: func(day2.LiveChange) error { return nil },
		}
	}
	change := day2.LiveChange{
		Entries: []day2.LiveEntry{{Path: "/etc/conf", Old: &before, New: &after}},
		Record:  hostfiles.NewFile("/etc/pivot/machineconfig.json", 0o600, []byte("{}")),
	}
	func() {
		defer func() {
			if r := recover(); r != any(killed{}) {
				t.Errorf("it ended with %v", r)
			}
		}()
		_ = runner(true).Apply(t.Context(), change)
	}()
	effects = nil
	if found, err := runner(false).Finish(t.Context()); err != nil || !found {
		t.Fatalf("found %v, %v", found, err)
	}
	synced := slices.Index(effects, "sync "+filepath.Dir(root+day2.LiveJournalPath))
	changed := slices.Index(effects, "rename to "+conf)
	if synced < 0 || changed < 0 || synced > changed {
		t.Errorf("the effects are %q", effects)
	}
	if got, err := os.ReadFile(conf); err != nil || string(got) != "new" {
		t.Errorf("it has %q, %v", got, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
