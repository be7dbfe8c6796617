package rehearse_test

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/rehearse"
	"machine-pivot/internal/verdict"
	"machine-pivot/kargs"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/ostreetree"
)

// TestMain makes the test's program what Stage starts.
func TestMain(m *testing.M) {
	if status, inside := rehearse.Inside(os.Args, os.Stdout, os.Stderr); inside {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// act is what the program testdata/actor does.
type act struct {
	Do     string
	Say    string
	Status int
	Signal syscall.Signal
	Known  []string
	// Answers are what modprobe says about some of these.
	Answers map[string]string
}

// world is a repository, with a program for systems, and a system that starts.
type world struct {
	t       *testing.T
	repo    string
	actor   string
	running ostree.Checksum
}

func newWorld(t *testing.T) *world {
	t.Helper()
	need.Root(t)
	need.Ostree(t)
	w := &world{t: t, repo: filepath.Join(t.TempDir(), "repo"), actor: filepath.Join(t.TempDir(), "actor")}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", w.actor, "./testdata/actor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the actor: %v\n%s", err, out)
	}
	w.must(ostreetree.Init(w.repo, "bare"))
	w.running = w.commit(nil)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// commit commits a system with programs that start, changed by a function.
func (w *world) commit(change func(tree string)) ostree.Checksum {
	w.t.Helper()
	tree := w.t.TempDir()
	for name, says := range map[string]string{"usr/bin/true": "", "usr/lib/systemd/systemd": "systemd 257 (257.9-1)"} {
		w.put(tree, name, w.actor, act{Say: says})
	}
	w.must(os.Symlink("usr/lib", filepath.Join(tree, "lib")))
	if change != nil {
		change(tree)
	}
	sum, err := ostreetree.CommitUnchecked(w.repo, tree)
	w.must(err)
	commit, err := ostree.ParseChecksum(sum)
	w.must(err)
	return commit
}

// put puts a program into a tree, and what it does.
func (w *world) put(tree, name, program string, a act) {
	w.t.Helper()
	text, err := json.Marshal(a)
	w.must(err)
	w.must(os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755))
	w.must(os.MkdirAll(filepath.Join(tree, "usr/etc/act"), 0o755))
	w.must(os.WriteFile(filepath.Join(tree, "usr/etc/act", filepath.Base(name)), text, 0o644))
	content, err := os.ReadFile(program)
	w.must(err)
	w.must(os.WriteFile(filepath.Join(tree, name), content, 0o755))
}

func (w *world) stage() rehearse.Stage {
	return rehearse.Stage{Self: "/proc/self/exe", Repo: w.repo, Limit: time.Minute}
}

// TestJudge: what does not start is refused with the program's own words, and what may be this rehearsal's fault, or the
// machine's, is only said.
func TestJudge(t *testing.T) {
	w := newWorld(t)
	plays := func(a act) func(string) {
		return func(tree string) { w.put(tree, "usr/bin/true", w.actor, a) }
	}
	write := func(name string, content []byte) func(string) {
		return func(tree string) { w.must(os.WriteFile(filepath.Join(tree, name), content, 0o755)) }
	}
	for _, c := range []struct {
		name    string
		change  func(tree string)
		limit   time.Duration
		refused string // the error; "": it is accepted
		note    string // "": none
	}{
		{name: "starts"},
		{name: "a large program that fails", change: func(tree string) {
			plays(act{Status: 3, Say: "no"})(tree)
			w.must(os.Truncate(filepath.Join(tree, "usr/bin/true"), 17<<20))
		}, refused: "its /usr/bin/true ends with exit status 3: no"},
		{name: "glibc wants x86-64-v3", change: plays(act{Say: "Fatal glibc error: CPU does not support x86-64-v3", Status: 127}),
			refused: "its /usr/bin/true needs another processor (Fatal glibc error: CPU does not support x86-64-v3)"},
		{name: "glibc wants z14", change: plays(act{Say: "Fatal glibc error: CPU lacks VXE support (z14 or later required)", Status: 127}),
			refused: "CPU lacks VXE support (z14 or later required)"},
		{name: "a library wants a newer processor", change: plays(act{Say: "/usr/bin/true: CPU ISA level is lower than required", Status: 127}),
			refused: "needs another processor (/usr/bin/true: CPU ISA level is lower than required)"},
		{name: "another program's words", change: plays(act{Say: "Fatal glibc error: CPU does not support x86-64-v3"})},
		{name: "an unknown instruction", change: plays(act{Signal: syscall.SIGILL}), refused: "its /usr/bin/true is killed by a signal (illegal instruction)"},
		{name: "a crash", change: plays(act{Signal: syscall.SIGSEGV}), refused: "is killed by a signal (segmentation fault)"},
		{name: "no library", change: plays(act{Say: "error while loading shared libraries: libc.so.6: cannot open shared object file: No such file or directory\nmore\x1b", Status: 127}),
			refused: "ends with exit status 127: error while loading shared libraries: libc.so.6: cannot open shared object file: No such file or directory"},
		{name: "no interpreter", change: write("usr/bin/true", []byte("#!/usr/bin/none\n")), refused: "needs a loader or an interpreter that the image does not have"},
		{name: "another architecture", change: write("usr/bin/true", foreign(t, w.actor)), refused: "cannot be executed: exec format error"},
		{name: "systemd does not start", change: func(tree string) {
			w.put(tree, "usr/lib/systemd/systemd", w.actor, act{Say: "no", Status: 1})
		}, refused: "its /usr/lib/systemd/systemd ends with exit status 1: no"},
		{name: "denied", change: plays(act{Say: "libc.so.6: cannot open shared object file: Permission denied", Status: 127}), note: "Permission denied"},
		{name: "killed by somebody", change: plays(act{Signal: syscall.SIGKILL}), note: "/usr/bin/true is killed by a signal (killed)"},
		{name: "hangs", change: plays(act{Do: "hang"}), limit: 100 * time.Millisecond, note: "/usr/bin/true takes too long"},
		{name: "says too much", change: plays(act{Do: "flood"}), note: "/usr/bin/true says too much"},
		{name: "leaves a child", change: plays(act{Do: "fork"})},
		{name: "no program", change: func(tree string) { w.must(os.RemoveAll(filepath.Join(tree, "usr/bin"))) }, note: "it has no /usr/bin/true"},
		{name: "a link to one program for all", change: func(tree string) {
			w.must(os.Rename(filepath.Join(tree, "usr/bin/true"), filepath.Join(tree, "usr/lib/coreutils")))
			w.must(os.Symlink("/lib/coreutils", filepath.Join(tree, "usr/bin/true")))
		}},
		{name: "sees and can do nothing else", change: func(tree string) {
			w.put(tree, "usr/bin/true", w.actor, act{Do: "look"})
			w.must(os.Chmod(filepath.Join(tree, "usr/bin/true"), 0o755|os.ModeSetuid))
			w.must(os.WriteFile(filepath.Join(tree, "usr/etc/writable"), nil, 0o644))
			w.must(os.Chmod(filepath.Join(tree, "usr/etc/writable"), 0o666))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage := w.stage()
			if c.limit != 0 {
				stage.Limit = c.limit
			}
			notes, err := judged(t.Context(), stage, w.commit(c.change), w.running, nil, rehearse.Facts{})
			checkRefused(t, err, c.refused)
			if (c.note == "") != (len(notes) == 0) || !strings.Contains(strings.Join(notes, "\n"), c.note) {
				t.Errorf("notes %q, wanted %q", notes, c.note)
			}
		})
	}
}

// judged returns what Judge finds, as a machine that accepts nothing tells it.
func judged(ctx context.Context, s rehearse.Stage, next, running ostree.Checksum, line kargs.Line, facts rehearse.Facts) (notes []string, err error) {
	found, err := s.Judge(ctx, rehearse.Change{Next: next, Running: running, Line: line}, facts)
	if err == nil {
		_, notes, err = verdict.Decide(found, nil)
	}
	return notes, err
}

func checkRefused(t *testing.T, err error, wanted string) {
	t.Helper()
	switch {
	case wanted == "" && err == nil:
	case wanted == "" || err == nil:
		t.Errorf("error %v, wanted %q", err, wanted)
	case !strings.Contains(err.Error(), wanted) || fault.KindOf(err) != fault.Refused || fault.HintOf(err) == "":
		t.Errorf("error %v (%v, hint %q), wanted %q", err, fault.KindOf(err), fault.HintOf(err), wanted)
	}
}

// foreign returns a program for another architecture.
func foreign(t *testing.T, program string) []byte {
	t.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	const machine = 18 // offset in the header
	binary.NativeEndian.PutUint16(content[machine:], uint16(elf.EM_68K))
	return content
}

// TestCompared: a program that fails in the running system, too, says nothing about the image.
func TestCompared(t *testing.T) {
	w := newWorld(t)
	bad := w.commit(func(tree string) { w.put(tree, "usr/bin/true", w.actor, act{Say: "no", Status: 1}) })
	without := w.commit(func(tree string) { w.must(os.RemoveAll(filepath.Join(tree, "usr/bin"))) })
	for running, want := range map[ostree.Checksum]string{
		bad:                 "/usr/bin/true ends with exit status 1: no, and the running system's, in the same place, ends with exit status 1: no",
		without:             "and the running system has none to compare with",
		ostree.Checksum{15}: "and the running system has none to compare with",
	} {
		notes, err := judged(t.Context(), w.stage(), bad, running, nil, rehearse.Facts{})
		if err != nil || len(notes) != 1 || !strings.Contains(notes[0], want) {
			t.Errorf("notes %q, error %v, wanted %q", notes, err, want)
		}
	}
}

// TestLimits: a program has no more memory and processes than it may have.
func TestLimits(t *testing.T) {
	w := newWorld(t)
	for do, want := range map[string]string{"hoard": "ends with exit status 2: ", "swarm": "resource temporarily unavailable"} {
		notes, err := judged(t.Context(), w.stage(), w.commit(func(tree string) {
			w.put(tree, "usr/bin/true", w.actor, act{Do: do})
		}), w.running, nil, rehearse.Facts{})
		if said := fmt.Sprint(notes, err); !strings.Contains(said, want) {
			t.Errorf("%s: %s, wanted %q", do, said, want)
		}
	}
}

// TestNowhere: where nothing can be run, nothing is judged.
func TestNowhere(t *testing.T) {
	w := newWorld(t)
	for name, stage := range map[string]rehearse.Stage{
		"no program":    {Self: filepath.Join(t.TempDir(), "none"), Repo: w.repo},
		"no repository": {Self: "/proc/self/exe", Repo: t.TempDir()},
	} {
		notes, err := judged(t.Context(), stage, w.running, w.running, nil, rehearse.Facts{})
		if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "its programs cannot be run from here") {
			t.Errorf("%s: notes %q, error %v", name, notes, err)
		}
	}
	if notes, err := judged(t.Context(), w.stage(), ostree.Checksum{15}, w.running, nil, rehearse.Facts{}); err != nil || len(notes) != 1 {
		t.Errorf("no commit: notes %q, error %v", notes, err)
	}
}

// TestCancelled: a run that is to stop does not wait for a program.
func TestCancelled(t *testing.T) {
	w := newWorld(t)
	hangs := w.commit(func(tree string) { w.put(tree, "usr/bin/true", w.actor, act{Do: "hang"}) })
	stage := w.stage()
	stage.Limit = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := judged(ctx, stage, hangs, w.running, nil, rehearse.Facts{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// TestLegacyCgroups: arguments for version 1 of control groups, by what the new systemd does with them.
func TestLegacyCgroups(t *testing.T) {
	w := newWorld(t)
	for says, want := range map[string]map[string]string{
		"systemd 255 (255.4)":  {"systemd.unified_cgroup_hierarchy=0": ""},
		"systemd 256~rc1 (x)":  {"systemd.unified_cgroup_hierarchy=0": "systemd 256 of the new system stops at its start"},
		"systemd 257 (257.9)":  {"systemd.unified_cgroup_hierarchy=no": "waits 30 s", "systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1": ""},
		"systemd 258 (258)":    {"systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1": "does not have it", "systemd.unified_cgroup_hierarchy=0 systemd.unified_cgroup_hierarchy": "", "": ""},
		"another program, 258": {"systemd.unified_cgroup_hierarchy=0": ""},
	} {
		commit := w.commit(func(tree string) { w.put(tree, "usr/lib/systemd/systemd", w.actor, act{Say: says}) })
		for line, want := range want {
			notes, err := judged(t.Context(), w.stage(), commit, w.running, kargs.Split(line), rehearse.Facts{})
			if err != nil || (want == "") != (len(notes) == 0) || !strings.Contains(strings.Join(notes, "\n"), want) {
				t.Errorf("%s, %s: notes %q, error %v, wanted %q", says, line, notes, err, want)
			}
		}
	}
}
