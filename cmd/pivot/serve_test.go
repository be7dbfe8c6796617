package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const workerWith = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-worker, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {kernelArguments: [ARGUMENT]}
`

// The command serves, takes changes, and ends when it is told to.
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
	cmd := exec.Command("pivot", "config", "serve", "--listen", "127.0.0.1:0", "--reload", "20ms", "--karg-policy", policy, filepath.Dir(file))
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	url := ""
	lines := bufio.NewScanner(pipe)
	for url == "" && lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "serving on "); ok {
			url = "http://" + address + "/config/worker"
		}
	}
	go func() { _, _ = io.Copy(io.Discard, pipe) }()
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
