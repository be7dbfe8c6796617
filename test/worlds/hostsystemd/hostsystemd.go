// Package hostsystemd starts the real systemd as the first process of namespaces, with its own /run and control groups,
// for tests that use its private socket.
package hostsystemd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/test/tools/need"
)

const program = "/usr/lib/systemd/systemd"

// inside prepares the namespaces, and becomes systemd. It needs nothing but its own target.
const inside = `set -e
mount -t tmpfs tmpfs /run
mkdir /run/systemd
mount -t tmpfs tmpfs /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH="$1" ` + program + ` --system --log-target=console --show-status=no
`

// inEnvironment is set in the environment of a test that runs inside.
const inEnvironment = "PIVOT_TEST_INSIDE"

// Inside returns true in a process that shares its namespaces with a systemd, which serves it at
// /run/systemd/private. A test calls it first, and its services end with it. Outside, it starts such a systemd, runs the same test there,
// reports how that went, and returns false: systemd talks only to processes that it can see.
func Inside(t *testing.T) bool {
	t.Helper()
	return enter(t, nil)
}

// InsideWithNetwork is like Inside, with a network of its own that has only the loopback interface: for programs that
// listen at ports that are not the test's to choose.
func InsideWithNetwork(t *testing.T) bool {
	t.Helper()
	if !enter(t, []string{"-n"}) {
		return false
	}
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
	return true
}

// loopbackUp makes the loopback interface of the process's network work.
func loopbackUp() error {
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP)
	return errors.Join(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up), unix.Close(fd))
}

// enter implements Inside. more are flags of unshare and nsenter for more namespaces.
func enter(t *testing.T, more []string) bool {
	t.Helper()
	if os.Getenv(inEnvironment) != "" {
		t.TempDir() // is removed after the services have ended, since functions of Cleanup are called last first
		t.Cleanup(func() { endServices(t) })
		return true
	}
	need.Root(t)
	need.File(t, program)
	need.Program(t, "unshare")
	need.Program(t, "nsenter")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// nsenter leaves the directory, and without -r also the root of a test that runs in a chroot.
	const inDirectory = `cd "$1" && shift && exec "$@"`
	args := slices.Concat([]string{"-t", start(t, more), "-m", "-r", "-p"}, more, []string{"--", "sh", "-c", inDirectory, "sh", dir, self, "-test.run", "^" + t.Name() + "$", "-test.v"})
	test := exec.Command("nsenter", args...)
	test.Env = append(os.Environ(), inEnvironment+"=1")
	out, err := test.CombinedOutput()
	if t.Logf("inside:\n%s", out); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")) {
		t.Errorf("the test fails inside: %v", err)
	}
	return false
}

// endServices ends the services that the program under test has started and that outlive it, before the test's
// temporary directory is removed, because they write there. A service that ends by itself meanwhile, and is forgotten, is
// an error of systemctl.
func endServices(t *testing.T) {
	var out []byte
	var err error
	for range 20 {
		if out, err = exec.Command("systemctl", "stop", "*.service").CombinedOutput(); err == nil {
			return
		}
	}
	t.Errorf("cannot stop the services: %v\n%s", err, out)
}

// start starts systemd until the test ends, and returns its process ID.
func start(t *testing.T, more []string) (pid string) {
	t.Helper()
	units := t.TempDir()
	for _, name := range []string{"default.target", "sysinit.target", "basic.target", "shutdown.target"} { // which services depend on
		if err := os.WriteFile(filepath.Join(units, name), []byte("[Unit]\nDescription=Nothing\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	group := controlGroup(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	const inGroup = `echo $$ > "$1/cgroup.procs" && shift && exec unshare --kill-child=KILL -m -p -f -u -i -C --mount-proc "$@"`
	cmd := exec.Command("sh", slices.Concat([]string{"-c", inGroup, "sh", group}, more, []string{"sh", "-c", inside, "sh", units})...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // and, by --kill-child, all that it has started
		_ = cmd.Wait()
		removeGroup(t, group)
	})
	if pid, err = started(cmd.Process.Pid); err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("systemd does not start: %v\n%s", err, said)
	}
	return pid
}

// started waits until the systemd that a process has started listens, and returns its process ID.
func started(parent int) (pid string, err error) {
	for range 1200 { // two minutes: four times what it took on a host with a load of ten
		var pids []byte
		if pids, err = os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent)); err == nil {
			pid = strings.TrimSpace(string(pids))
			if _, err = os.Stat("/proc/" + pid + "/root/run/systemd/private"); err == nil {
				return pid, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return "", err
}

// controlGroup creates a control group for a test.
func controlGroup(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			dir, err := os.MkdirTemp(f[1], "pivot-test-")
			if err != nil {
				need.Lacking(t, "needs to create control groups: "+err.Error())
			}
			return dir
		}
	}
	need.Lacking(t, "needs control groups, version 2")
	return ""
}

// Units returns the directory of the units of the systemd that this process is inside of.
func Units(t *testing.T) string {
	t.Helper()
	environment, err := os.ReadFile("/proc/1/environ")
	if err != nil {
		t.Fatal(err)
	}
	for variable := range strings.SplitSeq(string(environment), "\x00") {
		if dir, ok := strings.CutPrefix(variable, "SYSTEMD_UNIT_PATH="); ok {
			return dir
		}
	}
	t.Fatal("the first process is no systemd of a test")
	return ""
}

// removeGroup removes a control group with those below it, as soon as their processes are gone.
func removeGroup(t *testing.T, group string) {
	var err error
	for range 100 {
		var dirs []string
		err = filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			err = errors.Join(err, os.Remove(dirs[i]))
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("cannot remove the control group: %v", err)
}
