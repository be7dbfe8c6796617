package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/test/worlds/hostdir"
)

// TestGaveUp: the status of a first boot is what its unit does. One that gave up has failed, whatever its last run has
// left, and ends the wait; between two tries it continues.
func TestGaveUp(t *testing.T) {
	h := hostdir.New(t)
	// The programs take the directory for the machine that they run on.
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	h.Write("/proc/sys/kernel/random/boot_id", id)
	h.Write(firstboot.EncapsulatedPath, []byte(`{"spec":{"osImageURL":"127.0.0.1:1/os@sha256:`+strings.Repeat("1", 64)+`"}}`))
	bin := t.TempDir()
	state := func(text string) {
		t.Helper()
		script := "#!/bin/sh\ncat <<END\n" + text + "\nEND\n"
		if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pivot := func(args ...string) (string, int) {
		cmd := exec.Command("pivot", append(args, "--root", h.Root)...)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	expect := func(unit, phase, note string, exit int) {
		t.Helper()
		state(unit)
		out, status := pivot("status", "--exit-code")
		if !strings.HasPrefix(out, "phase    "+phase+"\n") || !strings.Contains(out, note) || status != exit {
			t.Errorf("%s: exit status %d, %s", strings.ReplaceAll(unit, "\n", " "), status, out)
		}
	}
	const failed, queued = "ActiveState=failed\nResult=exit-code", "ActiveState=inactive\nJob=17"

	expect("ActiveState=inactive\nJob=", "idle", "", 0) // nothing has begun
	expect(queued, "idle", "", 0)
	expect(failed, "failed", "ended without a word of its own: exit-code", 3) // as after a panic
	if out, status := pivot("firstboot", "--engine", "ostree", "--retry-for", "0s"); status != 69 {
		t.Fatalf("exit status %d: %s", status, out)
	}
	expect("ActiveState=activating\nSubState=auto-restart", "applying", "pivot-firstboot.service tries again", 0)
	expect(queued, "applying", "tries again", 0)
	expect(failed, "failed", "\nnext     systemctl restart pivot-firstboot.service\n", 3)
	expect("ActiveState=failed\nResult=start-limit-hit", "failed", "\nnext     systemctl reset-failed pivot-firstboot.service, then systemctl restart", 3)
	if out, status := pivot("wait", "--timeout", "5m"); status != 3 {
		t.Errorf("wait: exit status %d: %s", status, out)
	}
	// A pivot by hand has no unit.
	if err := os.Remove(h.Path(firstboot.EncapsulatedPath)); err != nil {
		t.Fatal(err)
	}
	expect(failed, "idle", "error", 0)
}
