package controlplane

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestProcessDiesWithTheTest kills a process that has started a component and checks that the
// component ends, too.
func TestProcessDiesWithTheTest(t *testing.T) {
	const parent = "CONTROLPLANE_TEST_PARENT"
	if log := os.Getenv(parent); log != "" {
		p, err := start("sleep", log, "sleep", "1000")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stdout.WriteString("pid " + strconv.Itoa(p.cmd.Process.Pid) + "\n"); err != nil {
			t.Fatal(err)
		}
		<-p.ended // never: this process is killed before
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestProcessDiesWithTheTest$")
	cmd.Env = append(os.Environ(), parent+"="+filepath.Join(t.TempDir(), "log"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "pid ")))
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	Eventually(t, "the component ends", func(context.Context) bool { return ended(pid) })
}

// ended reports whether a process is gone, or only waits for somebody to ask for its exit status.
func ended(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err != nil || strings.Contains(string(status), "State:\tZ") || syscall.Kill(pid, 0) != nil
}

// TestEnd checks what is known of a component that has ended by itself, and of one that was killed.
func TestEnd(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := start("sh", log, "sh", "-c", "echo reason; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if p.running() || p.tail() != "reason\n" {
		t.Errorf("running %v, output %q", p.running(), p.tail())
	}
	p.Kill() // no harm
	if p, err = start("sleep", log, "sleep", "1000"); err != nil {
		t.Fatal(err)
	}
	if !p.running() {
		t.Error("a component that runs is said to have ended")
	}
	if p.Kill(); p.running() {
		t.Error("a killed component is said to run")
	}
	if _, err := start("nothing", log, filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a program that does not exist is started")
	}
}

// TestReservedPort checks that nobody else gets the port, and that nobody answers there.
func TestReservedPort(t *testing.T) {
	a, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer a.release()
	if l, err := net.Listen("tcp", "127.0.0.1:"+a.number); err == nil {
		t.Errorf("another process gets the port: %v", l.Addr())
	}
	if conn, err := net.Dial("tcp", "127.0.0.1:"+a.number); err == nil {
		t.Errorf("somebody answers: %v", conn.RemoteAddr())
	}
}
