package hostpivot_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/hostsystemd"
)

// standIn stands in for pivot: it answers questions, and a run waits until it is told how to end. Its log is on
// its standard error.
const standIn = `#!/bin/sh
dir=$(dirname "$0")
echo "pivot: read: reading what to do" >&2
echo "$@" >> "$dir/calls"
doc() { echo '{"apiVersion":"'"$(cat "$dir/api" 2>/dev/null || echo pivot/v1)"'","kind":"'"$1"'",'"$2"'}'; }
end() {
	trap 'doc Result "\"outcome\":\"failed\",\"error\":{\"class\":\"unavailable\",\"message\":\"stopped: terminated\",\"hint\":\"\",\"permanent\":false}"; exit 69' TERM
	: > "$dir/running"
	until [ -e "$dir/end" ]; do sleep 0.05; done
	. "$dir/end"
}
case "$*" in
version*)
	until [ ! -e "$dir/slow" ]; do : > "$dir/running"; sleep 0.05; done
	doc Version '"version":"1.2.3"'
	;;
status*) doc Status '"phase":"done"'"$(cat "$dir/partitioning" 2>/dev/null)"',"booted":{"commit":"c1"},"pending":{"commit":"c2"},"downloaded":{"machineConfig":"sha256:1","at":"2026-01-01T00:00:00Z"},"machineConfig":{"current":{"name":"a"},"recordedBy":"pivot","desired":{"name":"a"}}' ;;
"verify --watch "*)
	trap 'exit 65' TERM
	doc Verify '"ok":true,"differences":[]' > "$4"
	while :; do sleep 0.05; done
	;;
verify*) doc Verify '"ok":false,"differences":[{"class":"arguments","name":"quiet","wrong":"missing","message":"m"}]'; exit 65 ;;
*--dry-run*) cat "$dir/plan" ;;
*) end ;;
esac
`

// host is a host with systemd and the stand-in for pivot.
type host struct {
	*testing.T
	*hostpivot.Systemd
	dir string
}

func newHost(t *testing.T) host {
	t.Helper()
	root, dir := "/", t.TempDir()
	h := host{t, nil, dir}
	h.write("pivot", standIn)
	if err := os.Chmod(filepath.Join(dir, "pivot"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "run/ostree-booted"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	h.Systemd = h.another(root)
	return h
}

// another returns a Systemd of another agent of the same host.
func (h host) another(root string) *hostpivot.Systemd {
	return &hostpivot.Systemd{Root: root, Program: filepath.Join(h.dir, "pivot"), Version: "1.9.0", Now: time.Now}
}

func (h host) write(name, content string) {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(content), 0o644); err != nil {
		h.Fatal(err)
	}
}

func (h host) look() hostpivot.Host {
	h.Helper()
	seen, err := h.Look(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	return seen
}

// ended waits until the run has ended.
func (h host) ended() hostpivot.Run {
	h.Helper()
	for range 1200 {
		if run := h.look().Run; run.State != hostpivot.RunRunning {
			return run
		}
		time.Sleep(50 * time.Millisecond)
	}
	h.Fatal("the run does not end")
	return hostpivot.Run{}
}

func (h host) start(r hostpivot.Request) {
	h.Helper()
	if err := os.Remove(filepath.Join(h.dir, "running")); err != nil && !errors.Is(err, fs.ErrNotExist) { // of the run before
		h.Fatal(err)
	}
	if err := h.Start(h.Context(), r); err != nil {
		h.Fatal(err)
	}
}

// running waits until the stand-in runs, and can be stopped.
func (h host) running() {
	h.Helper()
	file := filepath.Join(h.dir, "running")
	for range 1200 {
		if os.Remove(file) == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	h.Fatal("the run does not start")
}

func (h host) calls() string {
	h.Helper()
	data, err := os.ReadFile(filepath.Join(h.dir, "calls"))
	if err != nil {
		h.Fatal(err)
	}
	return string(data)
}

// TestStoppedWhileAsking: an agent that is stopped while it waits for an answer ends at once, and leaves no
// question behind.
func TestStoppedWhileAsking(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	h := newHost(t)
	h.write("slow", "")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := h.Look(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped before: error %v", err)
	}
	for range 20 {
		if err := os.Remove(filepath.Join(h.dir, "running")); err != nil && !errors.Is(err, fs.ErrNotExist) { // of the one before
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		looked := make(chan error)
		go func() {
			_, err := h.Look(ctx)
			looked <- err
		}()
		h.running()
		stop()
		select {
		case err := <-looked:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
		if out, err := exec.CommandContext(t.Context(), "systemctl", "show", "--property=LoadState", "--value", "pivot-agent-query.service").Output(); err != nil || strings.TrimSpace(string(out)) != "not-found" {
			t.Errorf("the question is there: %s, %v", out, err)
		}
	}
}

// TestSystemd runs the stand-in for pivot by the real systemd.
func TestSystemd(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	h := newHost(t)
	t.Run("what is there", func(t *testing.T) {
		seen := h.look()
		if seen.Version != "1.2.3" || seen.Start == "" || seen.Status.Current() != "a" || seen.Run.State != hostpivot.RunNone {
			t.Errorf("%+v", seen)
		}
		if found, err := h.Verify(t.Context()); err != nil || found.OK || len(found.Differences) != 1 || found.Differences[0].Name != "quiet" {
			t.Errorf("%+v, %v", found, err)
		}
		h.write("plan", `{"apiVersion":"pivot/v1","kind":"Plan","reboots":1,"drain":{"wanted":true,"because":["image"]}}`)
		if plan, err := h.Plan(t.Context(), hostpivot.Request{Data: []byte("{}"), Unsupported: "stop"}); err != nil || plan.Reboots != 1 || !plan.Drain.Wanted {
			t.Errorf("%+v, %v", plan, err)
		}
		h.write("plan", `{"apiVersion":"pivot/v1","kind":"Result","outcome":"failed","error":{"class":"input","message":"bad","hint":"","permanent":true}}`)
		_, err := h.Plan(t.Context(), hostpivot.Request{})
		if f, ok := errors.AsType[*hostpivot.Failure](err); !ok || f.Class != "input" {
			t.Errorf("a plan that fails: %v", err)
		}
		h.write("plan", "")
		if _, err := h.Plan(t.Context(), hostpivot.Request{}); err == nil || !strings.Contains(err.Error(), "no output") {
			t.Errorf("a plan without a document: %v", err)
		}
	})
	t.Run("a run outlives its agent", func(t *testing.T) {
		h.start(hostpivot.Request{Verb: hostpivot.Apply, Config: "b", Downloaded: true, Reboot: true, Unsupported: "stop", Data: []byte(`{"secret":1}`)})
		other := host{h.T, h.another(h.Root), h.dir}
		seen := other.look()
		if seen.Run.State != hostpivot.RunRunning || seen.Run.Request.Config != "b" || seen.Run.Request.ID == "" {
			t.Errorf("another agent finds %+v", seen.Run)
		}
		if err := other.Start(t.Context(), hostpivot.Request{Verb: hostpivot.Download, Config: "c"}); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("a second run: %v", err)
		}
		config := filepath.Join(h.Root, "run/pivot/agent/machineconfig.json")
		if data, err := os.ReadFile(config); err != nil || string(data) != `{"secret":1}` {
			t.Errorf("the run reads %s, %v", data, err)
		}
		h.write("end", `doc Result '"outcome":"rebooting"'`)
		began := time.Now()
		run := other.ended()
		if early, late := run.Ended.Before(began.Add(-time.Second)), run.Ended.After(time.Now().Add(time.Second)); early || late || run.Ended != h.look().Run.Ended {
			t.Errorf("the run has ended at %s", run.Ended)
		}
		if !run.Rebooting || run.Failure != nil || run.Request.Config != "b" {
			t.Errorf("the run has ended as %+v", run)
		}
		if _, err := os.Stat(config); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the MachineConfig stays on the host: %v", err)
		}
		if want := "apply --window=none --fleetlock=none --unsupported=stop --from-downloaded --reboot=if-needed -o json /run/pivot/agent/machineconfig.json\n"; !strings.Contains(h.calls(), want) {
			t.Errorf("pivot was called %s", h.calls())
		}
	})
	for name, c := range map[string]struct{ end, want string }{
		"an error":                   {`doc Result '"outcome":"failed","error":{"class":"refused","message":"no space","hint":"","permanent":true}'; exit 78`, "no space"},
		"a kill":                     {`kill -9 $$`, "without a result: signal (status 9)"},
		"no document":                {`exit 3`, "without a result: exit-code (status 3)"},
		"success without a document": {`exit 0`, "without a result: no output"},
	} {
		t.Run("a run that ends with "+name, func(t *testing.T) {
			h.write("end", c.end)
			h.start(hostpivot.Request{Verb: hostpivot.Download, Config: "b", Unsupported: "warn"})
			run := h.ended()
			if run.Failure == nil || !strings.Contains(run.Failure.Message, c.want) {
				t.Errorf("%+v", run.Failure)
			}
		})
	}
	t.Run("the host is given back", func(t *testing.T) {
		h.write("end", `doc Result '"outcome":"handed-back","leftOut":["disks"]'; exit 0`)
		h.start(hostpivot.Request{Verb: hostpivot.HandBack, Config: "b"})
		if run := h.ended(); run.Failure != nil || len(run.Result.LeftOut) != 1 || !strings.Contains(h.calls(), "\nhand-back -o json\n") {
			t.Errorf("%+v after %s", run, h.calls())
		}
	})
	t.Run("a run of the start before a soft reboot is over", func(t *testing.T) {
		file := filepath.Join(h.Root, "run/pivot/agent/request.json")
		data, err := os.ReadFile(file)
		if err != nil || h.look().Run.State != hostpivot.RunEnded {
			t.Fatalf("%+v, %v", h.look().Run, err)
		}
		now := string(h.look().Start)
		another := strings.Replace(string(data), now, now+"+7", 1)
		if another == string(data) {
			t.Fatalf("%s does not have the start %s", data, now)
		}
		if err := os.WriteFile(file, []byte(another), 0o600); err != nil {
			t.Fatal(err)
		}
		if run := h.look().Run; run.State != hostpivot.RunNone {
			t.Errorf("%+v", run)
		}
	})
	t.Run("the end of a run is noticed", func(t *testing.T) {
		if err := os.Remove(filepath.Join(h.dir, "end")); err != nil {
			t.Fatal(err)
		}
		h.start(hostpivot.Request{Verb: hostpivot.Download, Config: "b"})
		h.running()
		woken, ctx := make(chan struct{}, 10), t.Context()
		go func() { _ = h.NotifyRun(ctx, func() { woken <- struct{}{} }) }()
		h.look() // which itself does something in the agent's directory
		h.write("end", `doc Result '"outcome":"downloaded"'`)
		select {
		case <-woken:
		case <-time.After(30 * time.Second):
			t.Fatal("it is not")
		}
		if run := h.ended(); run.Failure != nil {
			t.Errorf("%+v", run)
		}
		h.look()
		if len(woken) > 0 {
			t.Error("to look at the host wakes the agent")
		}
	})
	t.Run("a run is stopped", func(t *testing.T) {
		if err := os.Remove(filepath.Join(h.dir, "end")); err != nil {
			t.Fatal(err)
		}
		h.start(hostpivot.Request{Verb: hostpivot.Download, Config: "b"})
		h.running()
		if err := h.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if run := h.ended(); run.Failure == nil || run.Failure.Class != "unavailable" {
			t.Errorf("%+v", run)
		}
	})
	t.Run("progress without a question", func(t *testing.T) {
		writeStatus(h.Root)
		h.start(hostpivot.Request{Verb: hostpivot.Download, Config: "b"})
		h.running()
		before, kept := h.calls(), h.look().Status
		if kept.Step != "pull" || kept.Percent != 42 || kept.PulledBytes() != 7 {
			t.Errorf("%+v", kept)
		}
		if !kept.Adopted() || kept.Phase != "done" || kept.Booted == nil || kept.Pending == nil || !kept.HasDownloaded("sha256:1") {
			t.Errorf("what the run's file does not know is lost: %+v", kept)
		}
		if h.calls() != before {
			t.Error("pivot was asked")
		}
		other := host{h.T, h.another(h.Root), h.dir}
		if s := other.look().Status; !s.Adopted() || s.Booted == nil {
			t.Errorf("another agent finds %+v", s)
		}
		before = h.calls()
		if s := other.look().Status; !s.Adopted() || s.Step != "pull" || h.calls() != before {
			t.Errorf("then it finds %+v, after %s", s, h.calls())
		}
		if err := h.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("killed before the start", func(t *testing.T) { // the request is written, and there is neither a unit nor a result
		if out, err := exec.Command("systemctl", "reset-failed").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := os.Remove(filepath.Join(h.Root, "run/pivot/agent/result.json")); err != nil {
			t.Fatal(err)
		}
		if run := h.look().Run; run.State != hostpivot.RunNone {
			t.Errorf("%+v", run)
		}
	})
	t.Run("what the cluster wants", func(t *testing.T) {
		w := api.Wanted{Node: "n1", Config: "b", State: "Working", Step: "drain", Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		if err := h.Tell(&w); err != nil {
			t.Fatal(err)
		}
		if got, err := api.ReadWanted(h.Root); err != nil || got == nil || *got != w {
			t.Errorf("%+v, %v", got, err)
		}
		for range 2 {
			if err := h.Tell(nil); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := api.ReadWanted(h.Root); err != nil || got != nil {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("workloads", func(t *testing.T) {
		beside := h.another(h.Root)
		beside.Queries = "pivot-agent-workloads.service"
		if _, err := beside.Workloads(t.Context()); fault.KindOf(err) != fault.Refused {
			t.Errorf("a pivot that does not say them: %v", err)
		}
		h.write("partitioning", `,"partitioning":{"workloads":["management"]}`)
		if w, err := beside.Workloads(t.Context()); err != nil || !slices.Equal(w.Types, []string{"management"}) || w.Problem != "" {
			t.Errorf("%+v, %v", w, err)
		}
		h.write("partitioning", `,"partitioning":{"workloads":[],"problem":"bad"}`)
		if w, err := beside.Workloads(t.Context()); err != nil || len(w.Types) > 0 || w.Problem != "bad" {
			t.Errorf("%+v, %v", w, err)
		}
		// Two questions at the same time, of which neither ends the other.
		errs := make(chan error)
		go func() {
			for range 5 {
				if _, err := beside.Workloads(t.Context()); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
		for range 5 {
			if _, err := h.Verify(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
	})
	t.Run("the host is watched", func(t *testing.T) {
		woken, ended := make(chan struct{}, 1), make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- h.NotifyDrift(ctx, func() { woken <- struct{}{} }) }()
		other := host{h.T, h.another(h.Root), h.dir}
		for _, agent := range []host{h, other} {
			if err := agent.Watch(t.Context(), true); err != nil {
				t.Fatal(err)
			}
		}
		<-woken
		if w := other.look().Watched; w == nil || !w.OK || w.At.IsZero() {
			t.Errorf("%+v", w)
		}
		if n := strings.Count(h.calls(), "verify --watch"); n != 1 {
			t.Errorf("pivot watches %d times", n)
		}
		for range 2 {
			if err := other.Watch(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
		if w := other.look().Watched; w != nil {
			t.Errorf("%+v", w)
		}
		if out, err := exec.Command("systemctl", "show", "--property=LoadState,ActiveState", "pivot-agent-watch.service").CombinedOutput(); err != nil || string(out) != "LoadState=not-found\nActiveState=inactive\n" {
			t.Errorf("the unit stays: %v: %s", err, out)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("one agent", func(t *testing.T) {
		if err := h.Lock(); err != nil {
			t.Fatal(err)
		}
		if err := h.another(h.Root).Lock(); fault.KindOf(err) != fault.Unavailable || fault.HintOf(err) == "" {
			t.Errorf("two agents: %v", err)
		}
	})
	t.Run("versions", func(t *testing.T) {
		other := h.another(h.Root)
		for _, near := range []string{"0.9.0", "1.0.0", "2.0.0-rc1"} { // the host has 1.2.3
			other.Version = near
			if h, err := other.Look(t.Context()); err != nil || h.Version != "1.2.3" {
				t.Errorf("an agent %s: %q, %v", near, h.Version, err)
			}
		}
		other.Version = "3.0.0"
		if _, err := other.Look(t.Context()); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "1.2.3") || !strings.Contains(err.Error(), "3.0.0") {
			t.Errorf("an unknown version: %v", err)
		}
		h.write("api", "pivot/v9")
		if _, err := h.another(h.Root).Look(t.Context()); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "pivot/v9") {
			t.Errorf("another version of the documents: %v", err)
		}
	})
	t.Run("no ostree host", func(t *testing.T) {
		if err := os.Remove(filepath.Join(h.Root, "run/ostree-booted")); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Look(t.Context()); !errors.Is(err, hostpivot.ErrNotOstree) {
			t.Errorf("%v", err)
		}
		if w, err := h.Workloads(t.Context()); err != nil || len(w.Types) > 0 {
			t.Errorf("%+v, %v", w, err)
		}
	})
}
