package main

import (
	"bytes"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/worlds/hostdir"
)

// TestUnitIsGivenTime (P65): systemd gets the status of a run, each time with an extension of
// the unit's timeout, which so limits only the time without progress.
func TestUnitIsGivenTime(t *testing.T) {
	h := hostdir.New(t)
	socket := filepath.Join(t.TempDir(), "notify")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cmd := exec.Command("pivot", "rebase", "--root", h.Root, "--engine", "ostree", h.Image)
	cmd.Env = append(cmd.Environ(), "NOTIFY_SOCKET="+socket)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // it fails: no deployment can be made here
	var notified []string
	buffer := make([]byte, 4096)
	for !strings.Contains(strings.Join(notified, "\n"), "STATUS=failed") {
		if err := listener.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := listener.Read(buffer)
		if err != nil {
			t.Fatalf("%v; systemd was told %q", err, notified)
		}
		notified = append(notified, string(buffer[:n]))
	}
	if len(notified) < 5 {
		t.Errorf("systemd was told only %q", notified)
	}
	for _, message := range notified {
		if !strings.HasPrefix(message, "STATUS=") || !strings.HasSuffix(message, "\nEXTEND_TIMEOUT_USEC=3600000000") || strings.Count(message, "\n") != 1 {
			t.Errorf("systemd was told %q", message)
		}
	}
}
