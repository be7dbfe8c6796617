package day2_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
)

// services is a root directory with /etc/a and /etc/b, and a change of both.
type services struct {
	day2.LiveRunner
	effects []string
	asked   []string // of the services
	fails   error    // of a reload
	notes   string
	change  day2.LiveChange
}

func newServices(t *testing.T) *services {
	t.Helper()
	m := &services{}
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "etc/pivot"), 0o755))
	for _, name := range []string{"/etc/a", "/etc/b"} {
		must(t, os.WriteFile(filepath.Join(root, name), []byte("old"), 0o644))
		before, after := hostfiles.NewFile(name, 0o644, []byte("old")), hostfiles.NewFile(name, 0o644, []byte("new"))
		m.change.Entries = append(m.change.Entries, day2.LiveEntry{Path: name, Old: &before, New: &after})
	}
	m.change.BootID, m.change.Record = "boot", hostfiles.NewFile("/etc/pivot/machineconfig.json", 0o600, []byte("{}"))
	m.change.Actions = []disruption.Action{{Type: disruption.Reload, Service: "a.service"}}
	m.LiveRunner = day2.LiveRunner{Root: root, BootID: "boot", Disk: traced{root: root, effects: &m.effects}, Services: m, Note: func(text string) { m.notes += text + "\n" },
		Arrived: func(day2.LiveChange) error { return nil }, Project: func() error { return nil }}
	return m
}

func (m *services) ask(what string) { m.asked = append(m.asked, what) }

func (m *services) DaemonReload(context.Context) error { m.ask("daemon-reload"); return nil }
func (m *services) Restart(_ context.Context, unit string) error {
	m.ask("restart " + unit)
	return nil
}
func (m *services) Reload(_ context.Context, unit string) error {
	m.ask("reload " + unit)
	return m.fails
}
func (m *services) State(_ context.Context, unit string) (host.UnitState, error) {
	m.ask("state " + unit)
	return host.UnitState{ID: unit, Load: "loaded", Active: "active", Sub: "running", Result: "success"}, nil
}
func (m *services) Starting(context.Context) (bool, error) { return false, nil }
func (m *services) UpdateTrust(context.Context) error      { m.ask("trust"); return nil }

// has checks the contents of both files.
func (m *services) has(t *testing.T, want string) {
	t.Helper()
	for _, name := range []string{"/etc/a", "/etc/b"} {
		if got, err := os.ReadFile(filepath.Join(m.Root, name)); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
}

// TestLiveStagedIsDurable: the directory of the staged files is synced before any of them is renamed.
func TestLiveStagedIsDurable(t *testing.T) {
	m := newServices(t)
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

// TestLiveKindOfFailure: a failure of the disk is that of a write, and one with a kind keeps it.
func TestLiveKindOfFailure(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fault.Kind
	}{{errors.New("input/output error"), fault.CannotWrite}, {fault.New(fault.Unavailable, "not now"), fault.Unavailable}} {
		m := newServices(t)
		m.Disk = refusing{Disk: m.Disk, err: c.err}
		if err := m.Apply(t.Context(), m.change); fault.KindOf(err) != c.want || !strings.Contains(err.Error(), "cannot change the running /etc: "+c.err.Error()) {
			t.Errorf("%v: error %v of kind %v", c.err, err, fault.KindOf(err))
		}
		m.has(t, "old")
		if day2.LiveInterrupted(m.Root) {
			t.Error("there is a journal")
		}
	}
}

// TestLiveWayBackIsFinished: a way back that fails is found, and taken to its end, by the next run.
func TestLiveWayBackIsFinished(t *testing.T) {
	m := newServices(t)
	m.fails = errors.New("it does not reload")
	disk := m.Disk
	reloads := 0
	m.Acted = func(disruption.Action) {
		if reloads++; reloads == 1 { // from now on, nothing can be put back
			m.Disk = refusing{Disk: disk, err: errors.New("no more"), rename: "/etc/b"}
		}
	}
	if err := m.Apply(t.Context(), m.change); err == nil || !strings.Contains(err.Error(), "could not be put back") || !day2.LiveInterrupted(m.Root) {
		t.Fatal(err)
	}
	m.Disk, m.fails = disk, nil
	if found, err := m.Finish(t.Context()); err != nil || !found || day2.LiveInterrupted(m.Root) {
		t.Errorf("found %v, %v", found, err)
	}
	m.has(t, "old")
	if found, err := m.Finish(t.Context()); err != nil || found {
		t.Errorf("found %v again, %v", found, err)
	}
}

// TestLiveStoppedBeforeActions: a run that is stopped after the files are changed tells no service; the next run does.
func TestLiveStoppedBeforeActions(t *testing.T) {
	m := newServices(t)
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

// TestLiveRoom: a change has room in its journal for what it replaces up to the journal's limit, and not beyond.
func TestLiveRoom(t *testing.T) {
	const limit = 32<<20 - 6*(4<<10) - 1<<10 // as large as a journal may be when it is written first
	size := func(c day2.LiveChange) int {
		data, err := json.MarshalIndent(struct {
			Format int `json:"format"`
			day2.LiveChange
		}{1, c}, "", "  ")
		must(t, err)
		return len(data)
	}
	m := newServices(t)
	c := m.change
	c.Entries = nil
	c.Failure = "x"
	fill := limit - size(c)
	c.Failure = strings.Repeat("x", 1+fill)
	if _, fits, err := day2.LiveRoomFor(c); err != nil || !fits {
		t.Errorf("a change that is as large as the limit: %v, %v", fits, err)
	}
	c.Failure = strings.Repeat("x", 1+fill-5000)
	room, fits, err := day2.LiveRoomFor(c)
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
