package osimage_test

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"machine-pivot/test/tools/need"
)

// offline is the variable that TestOffline sets when it runs this program again.
const offline = "TEST_OFFLINE"

// TestOffline runs the tests of local media, and itself, in a network namespace without any
// network, not even a loopback interface. The kernel counts attempts to connect.
func TestOffline(t *testing.T) {
	if os.Getenv(offline) != "" {
		nobodyDialed(t)
		return
	}
	if testing.Short() {
		t.Skip("runs other tests once more")
	}
	need.Root(t) // makes a network namespace
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^(TestLocal|TestOffline)")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	cmd.Env = append(os.Environ(), offline+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, test := range []string{"TestLocalNames", "TestLocalPolicy", "TestLocalSignature", "TestOffline"} { // the others may lack ostree
		if !strings.Contains(string(out), "--- PASS: "+test) {
			t.Errorf("%s did not run:\n%s", test, out)
		}
	}
}

// nobodyDialed checks that the tests of local media did not use the network. It runs after them
// in the same network namespace (go test runs files in the order of their names). An attempt
// to connect finds no route, and the kernel counts that.
func nobodyDialed(t *testing.T) {
	t.Helper()
	if n := unrouted(t); n != 0 {
		t.Errorf("%d packets or connections found no route: who sent them?", n)
	}
	if _, err := net.Dial("tcp4", "127.0.0.1:1"); err == nil || unrouted(t) == 0 {
		t.Errorf("a connection is not counted, so the test proves nothing (%v)", err)
	}
}

// unrouted returns how often the kernel found no route in this network namespace.
func unrouted(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
	i := slices.Index(names, "OutNoRoutes")
	if i < 0 {
		t.Fatalf("the kernel does not count OutNoRoutes: %s", lines[0])
	}
	if n, err = strconv.Atoi(values[i]); err != nil {
		t.Fatal(err)
	}
	six, err := os.ReadFile("/proc/self/net/snmp6")
	if err != nil {
		return n // a kernel without IPv6
	}
	for _, line := range strings.Split(string(six), "\n") {
		if value, ok := strings.CutPrefix(line, "Ip6OutNoRoutes"); ok {
			more, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			n += more
		}
	}
	return n
}
