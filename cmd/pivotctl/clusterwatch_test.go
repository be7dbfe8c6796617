package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWatch: --watch shows the fleet until ^C, and does not begin if the API server does not answer.
func TestWatch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"items":[]}`) }))
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q}}]}`, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "pivotctl", "cluster", "status", "--watch", "--kubeconfig", file)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	if !lines.Scan() || lines.Text() != "no pools" {
		t.Errorf("the first line is %q", lines.Text())
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // Wait closes the pipe
	}
	ended, ok := errors.AsType[*exec.ExitError](cmd.Wait())
	if !ok || ended.ExitCode() != 130 {
		t.Errorf("it ends with %v", ended)
	}
	server.Close()
	text, err := exec.CommandContext(t.Context(), "pivotctl", "cluster", "status", "--watch", "--kubeconfig", file).CombinedOutput()
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != 69 || !strings.Contains(string(text), "hint: ") {
		t.Errorf("without a server: %v, %s", err, text)
	}
}
