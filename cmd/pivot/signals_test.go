package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	"machine-pivot/internal/status"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

// TestSignals: ^C, a lost terminal and a stop by systemd end a run at its next safe point,
// with its own exit status and the phase "interrupted". A signal that the caller ignores, as
// nohup does, stays ignored.
func TestSignals(t *testing.T) {
	// A signal that this process ignores, as under nohup, would be ignored by the programs, too.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGINT)
	defer signal.Stop(caught)
	for _, c := range []struct {
		name    string
		ignored string // a signal that the caller ignores, and that comes first
		signal  syscall.Signal
		exit    int
		says    string
	}{
		{"interrupt", "", syscall.SIGINT, 130, "interrupt signal received"},
		{"hangup", "", syscall.SIGHUP, 69, "hangup signal received"},
		{"terminate", "", syscall.SIGTERM, 69, "terminated signal received"},
		{"nohup", "HUP", syscall.SIGTERM, 69, "terminated signal received"},
		{"in the background of a script", "INT", syscall.SIGHUP, 69, "hangup signal received"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			registry, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
			if err != nil {
				t.Fatal(err)
			}
			defer registry.Close()
			args := []string{"-c", `[ -z "$1" ] || trap "" $1; shift; exec "$@"`, "sh", c.ignored,
				"pivot", "rebase", "--root", h.Root, "--engine", "ostree", registry.Addr().String() + "/os:x"}
			cmd := exec.Command("sh", args...)
			var out bytes.Buffer
			cmd.Stderr = &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := registry.Accept(); err != nil { // so the run is on its way
				t.Fatal(err)
			}
			for _, s := range map[string][]syscall.Signal{"": nil, "HUP": {syscall.SIGHUP}, "INT": {syscall.SIGINT}}[c.ignored] {
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != c.exit || !bytes.Contains(out.Bytes(), []byte("stopped before the commit: "+c.says)) {
				t.Errorf("exit status %d, want %d: %s", got, c.exit, out.Bytes())
			}
			s := statusOf(t, h)
			if s.Phase != pivot.PhaseInterrupted || s.Error == nil || s.Error.ExitStatus != c.exit || s.Error.Permanent {
				t.Errorf("phase %s, %+v", s.Phase, s.Error)
			}
		})
	}
}

// TestReaderIsGone: a run continues if nobody reads its messages any more, as when a session without a terminal is
// lost.
func TestReaderIsGone(t *testing.T) {
	h := hostdir.New(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("pivot", "rebase", "--root", h.Root, "--engine", "ostree", "--retry-for", "0s", "127.0.0.1:1/os:x")
	cmd.Stdout, cmd.Stderr = write, write
	_ = cmd.Run()
	if s := statusOf(t, h); cmd.ProcessState.ExitCode() != 69 || s.Error == nil {
		t.Errorf("%s, %+v", cmd.ProcessState, s)
	}
}

func statusOf(t *testing.T, h *hostdir.Host) (s status.Status) {
	t.Helper()
	out, err := exec.Command("pivot", "status", "--root", h.Root, "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSignalsWhileReading: a signal ends a command that waits for the standard input or a pipe, for
// each way to name a file.
func TestSignalsWhileReading(t *testing.T) {
	caught := make(chan os.Signal, 1) // a signal that this process ignored, the programs would ignore, too
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGINT)
	defer signal.Stop(caught)
	for _, argv := range readers() {
		script.StopsReading(t, argv...)
	}
}

// TestNamedFiles: no command reads without a limit from a file that it is given, and each says what
// is wrong with it.
func TestNamedFiles(t *testing.T) {
	for _, argv := range readers() {
		if slices.Contains(argv, "PIPE") {
			script.RefusesFiles(t, argv...)
		}
	}
}

// readers returns commands that read the standard input or the file PIPE: one for each way to name a file.
func readers() (all [][]string) {
	for _, argv := range [][]string{
		{"apply", "-"},
		{"apply", "--dry-run", "PIPE"},
		{"diff", "-", "/dev/null"},
		{"diff", "--rules", "PIPE", "a", "b"},
		{"diff", "--karg-policy", "PIPE", "a", "b"},
		{"plot", "--journal", "-"},
		{"plot", "--journal", "PIPE"},
	} {
		all = append(all, append([]string{"pivot"}, argv...))
	}
	return all
}
