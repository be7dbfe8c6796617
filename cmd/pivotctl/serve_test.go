package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const workerWith = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-worker, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {kernelArguments: [ARGUMENT]}
`

// TestServeCommand: the command serves, applies changes, and ends on a signal.
func TestServeCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	write := func(argument string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Replace(workerWith, "ARGUMENT", argument, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("loglevel=3")
	policy := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(policy, []byte("allow root\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd, log := serving(t, "--karg-policy", policy, filepath.Dir(file))
	url := "http://" + log.until("serving on ") + "/config/worker"
	go log.rest()
	if body := body(t, url); !strings.Contains(body, "loglevel%3D3") || !strings.Contains(body, `"/etc/pivot/kernel-args.policy"`) {
		t.Fatal(body)
	}
	write("loglevel=7")
	for deadline := time.Now().Add(time.Minute); !strings.Contains(body(t, url), "loglevel%3D7"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the change is not served")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestServeTellsNoSecrets: URL signatures are neither in the log nor in the lock file,
// and the reason why newer files are not served is only in the log.
func TestServeTellsNoSecrets(t *testing.T) {
	var answer atomic.Value
	answer.Store("one")
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer.Load().(string)) }))
	defer source.Close()
	dir := t.TempDir()
	file, lock := filepath.Join(dir, "conf", "a.yaml"), filepath.Join(dir, "lock")
	write := func(more string) {
		t.Helper()
		text := strings.Replace(workerWith, "ARGUMENT]}", `nosmt], config: {ignition: {version: 3.2.0}, storage: {files: [
  {path: /etc/motd, contents: {source: "`+source.URL+`/motd?sig=S3CRET"}}]}}`+more+`}`, 1)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	cmd, log := serving(t, "--lock", lock, filepath.Dir(file))
	address := log.until("serving on ")
	answer.Store("two")
	write(", fips: false")
	log.until("not reloaded")
	health := body(t, "http://"+address+"/healthz")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	log.rest()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	kept, err := os.ReadFile(lock)
	if err != nil || strings.Contains(string(kept)+log.String()+health, "S3CRET") {
		t.Errorf("%v\nlock %s\nlog %s\nhealth %s", err, kept, log.String(), health)
	}
	if !strings.Contains(log.String(), "/motd\": its content has changed: since") || health != "ok, but the newest input is not served: see the log\n" {
		t.Errorf("log %s\nhealth %s", log.String(), health)
	}
}

// serving runs the command with these arguments and kills it when the test ends.
func serving(t *testing.T, args ...string) (*exec.Cmd, *serverLog) {
	t.Helper()
	cmd := exec.Command("pivotctl", append([]string{"config", "serve", "--listen", "127.0.0.1:0", "--reload", "20ms"}, args...)...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, &serverLog{t: t, lines: bufio.NewScanner(pipe)}
}

// serverLog is the part of a server's log that has been read so far.
type serverLog struct {
	strings.Builder
	t     *testing.T
	lines *bufio.Scanner
}

// until reads to the first line with the given prefix and returns the rest of that line.
func (l *serverLog) until(begin string) string {
	l.t.Helper()
	for l.lines.Scan() {
		l.WriteString(l.lines.Text() + "\n")
		if rest, ok := strings.CutPrefix(l.lines.Text(), begin); ok {
			return rest
		}
	}
	l.t.Fatalf("the log ends without %q:\n%s", begin, l)
	return ""
}

// rest reads to the end.
func (l *serverLog) rest() {
	for l.lines.Scan() {
		l.WriteString(l.lines.Text() + "\n")
	}
}

func body(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
