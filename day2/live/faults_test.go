package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2/live"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
)

// machine is a root directory with /etc/a and /etc/b, and a change of both.
type machine struct {
	live.Runner
	effects []string
	asked   []string // of the services
	fails   error    // of a reload
	notes   string
	change  live.Change
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{}
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "etc/pivot"), 0o755))
	for _, name := range []string{"/etc/a", "/etc/b"} {
		must(t, os.WriteFile(filepath.Join(root, name), []byte("old"), 0o644))
		before, after := hostfiles.NewFile(name, 0o644, []byte("old")), hostfiles.NewFile(name, 0o644, []byte("new"))
		m.change.Entries = append(m.change.Entries, live.Entry{Path: name, Old: &before, New: &after})
	}
	m.change.BootID, m.change.Record = "boot", hostfiles.NewFile("/etc/pivot/machineconfig.json", 0o600, []byte("{}"))
	m.change.Actions = []disruption.Action{{Type: disruption.Reload, Service: "a.service"}}
	m.Runner = live.Runner{Root: root, BootID: "boot", Disk: traced{root: root, effects: &m.effects}, Services: m, Note: func(text string) { m.notes += text + "\n" },
		Arrived: func(live.Change) error { return nil }, Project: func() error { return nil }}
	return m
}

func (m *machine) ask(what string) { m.asked = append(m.asked, what) }

func (m *machine) DaemonReload(context.Context) error { m.ask("daemon-reload"); return nil }
func (m *machine) Restart(_ context.Context, unit string) error {
	m.ask("restart " + unit)
	return nil
}
func (m *machine) Reload(_ context.Context, unit string) error {
	m.ask("reload " + unit)
	return m.fails
}
func (m *machine) State(_ context.Context, unit string) (host.UnitState, error) {
	m.ask("state " + unit)
	return host.UnitState{ID: unit, Load: "loaded", Active: "active", Sub: "running", Result: "success"}, nil
}
func (m *machine) Starting(context.Context) (bool, error) { return false, nil }
func (m *machine) UpdateTrust(context.Context) error      { m.ask("trust"); return nil }

// has checks the contents of both files.
func (m *machine) has(t *testing.T, want string) {
	t.Helper()
	for _, name := range []string{"/etc/a", "/etc/b"} {
		if got, err := os.ReadFile(filepath.Join(m.Root, name)); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
}

// TestStagedIsDurable: the directory of the staged files is synced before any of them is renamed.
func TestStagedIsDurable(t *testing.T) {
	m := newMachine(t)
	must(t, m.Apply(t.Context(), m.change))
	m.has(t, "new")
	staged := slices.Index(m.effects, "sync "+filepath.Join(m.Root, "etc/pivot/live"))
	if moved := slices.Index(m.effects, "rename to "+filepath.Join(m.Root, "etc/a")); staged < 0 || moved < 0 || staged > moved {
		t.Errorf("the effects are %q", m.effects)
	}
}

// refusing is a Disk on which one kind of effect fails.
type refusing struct {
	hostfiles.Disk
	err    error
	rename string // the path to which nothing is renamed; "": nothing is made
}

func (d refusing) Make(path string, f hostfiles.File, label string) error {
	if d.rename == "" {
		return d.err
	}
	return d.Disk.Make(path, f, label)
}

func (d refusing) Rename(from, to string) error {
	if d.rename != "" && filepath.Base(to) == filepath.Base(d.rename) {
		return d.err
	}
	return d.Disk.Rename(from, to)
}

// TestKindOfFailure: a failure of the disk is that of a write, and one with a kind keeps it.
func TestKindOfFailure(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fault.Kind
	}{{errors.New("input/output error"), fault.CannotWrite}, {fault.New(fault.Unavailable, "not now"), fault.Unavailable}} {
		m := newMachine(t)
		m.Disk = refusing{Disk: m.Disk, err: c.err}
		if err := m.Apply(t.Context(), m.change); fault.KindOf(err) != c.want || !strings.Contains(err.Error(), "cannot change the running /etc: "+c.err.Error()) {
			t.Errorf("%v: error %v of kind %v", c.err, err, fault.KindOf(err))
		}
		m.has(t, "old")
		if live.Interrupted(m.Root) {
			t.Error("there is a journal")
		}
	}
}

// TestWayBackIsFinished: a way back that fails is found, and taken to its end, by the next run.
func TestWayBackIsFinished(t *testing.T) {
	m := newMachine(t)
	m.fails = errors.New("it does not reload")
	disk := m.Disk
	reloads := 0
	m.Acted = func(disruption.Action) {
		if reloads++; reloads == 1 { // from now on, nothing can be put back
			m.Disk = refusing{Disk: disk, err: errors.New("no more"), rename: "/etc/b"}
		}
	}
	if err := m.Apply(t.Context(), m.change); err == nil || !strings.Contains(err.Error(), "could not be put back") || !live.Interrupted(m.Root) {
		t.Fatal(err)
	}
	m.Disk, m.fails = disk, nil
	if found, err := m.Finish(t.Context()); err != nil || !found || live.Interrupted(m.Root) {
		t.Errorf("found %v, %v", found, err)
	}
	m.has(t, "old")
	if found, err := m.Finish(t.Context()); err != nil || found {
		t.Errorf("found %v again, %v", found, err)
	}
}

// TestStoppedBeforeActions: a run that is stopped after the files are changed tells no service; the next run does.
func TestStoppedBeforeActions(t *testing.T) {
	m := newMachine(t)
	ctx, stop := context.WithCancel(t.Context())
	m.change.Projects = true
	m.Project = func() error { stop(); return nil }
	if err := m.Apply(ctx, m.change); fault.KindOf(err) != fault.Unavailable || len(m.asked) > 0 {
		t.Errorf("error %v, asked %q", err, m.asked)
	}
	if found, err := m.Finish(t.Context()); err != nil || !found || !slices.Contains(m.asked, "reload a.service") {
		t.Errorf("found %v, %v, asked %q", found, err, m.asked)
	}
	m.has(t, "new")
}

// TestRoom: a change has room in its journal for what it replaces up to the journal's limit, and not beyond.
func TestRoom(t *testing.T) {
	const limit = 32<<20 - 6*(4<<10) - 1<<10 // as large as a journal may be when it is written first
	size := func(c live.Change) int {
		data, err := json.MarshalIndent(struct {
			Format int `json:"format"`
			live.Change
		}{1, c}, "", "  ")
		must(t, err)
		return len(data)
	}
	m := newMachine(t)
	c := m.change
	c.Entries = nil
	c.Failure = "x"
	fill := limit - size(c)
	c.Failure = strings.Repeat("x", 1+fill)
	if _, fits, err := live.RoomFor(c); err != nil || !fits {
		t.Errorf("a change that is as large as the limit: %v, %v", fits, err)
	}
	c.Failure = strings.Repeat("x", 1+fill-5000)
	room, fits, err := live.RoomFor(c)
	if err != nil || !fits {
		t.Fatal(err)
	}
	old := hostfiles.NewFile("/etc/old", 0o644, []byte(strings.Repeat("x", 3000))) // takes 4,000 bytes, and its name
	for _, want := range []bool{true, false} {
		if took, err := room.Take(old); err != nil || took != want {
			t.Errorf("room for an old file: %v, %v, want %v", took, err, want)
		}
	}
}
