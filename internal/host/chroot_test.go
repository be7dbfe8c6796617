package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/test/tools/need"
)

// probe is the path of the test's static binary in the chroot. Under that name it prints what
// it sees there.
const probe = "/usr/sbin/probe"

func TestMain(m *testing.M) {
	if os.Args[0] == probe {
		printView(os.Args[1:])
	}
	os.Exit(m.Run())
}

func printView(args []string) {
	if len(args) > 0 {
		fmt.Fprintln(os.Stderr, args[0])
		os.Exit(3)
	}
	dir, err := os.Getwd()
	entries, rerr := os.ReadDir("/usr")
	fmt.Println(dir, os.Getenv("PATH"), os.Getenv("SECRET"), entries, err, rerr)
	os.Exit(0)
}

// TestRunIn runs a program in a root that contains nothing else.
func TestRunIn(t *testing.T) {
	need.Root(t)
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(root+"/usr/libexec", 0o755), os.MkdirAll(root+"/usr/sbin", 0o755),
		os.WriteFile(root+"/usr/libexec/probe", content, 0o755),
		os.Symlink("/usr/libexec/probe", root+probe), // dangling outside of the chroot
		os.WriteFile(root+"/usr/sbin/data", nil, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	run := host.RunIn(root)
	t.Setenv("SECRET", "of the initramfs")
	out, err := run(t.Context(), "probe")
	if want := "/ /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin  [d libexec/ d sbin/] <nil> <nil>\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := run(t.Context(), "probe", "why"); err == nil || !strings.Contains(err.Error(), "why (exit status 3)") {
		t.Errorf("error %v", err)
	}
	for _, name := range []string{"nothing", "data", "sh"} {
		if _, err := run(t.Context(), name); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "not installed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	stopped, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	if _, err := run(stopped, "probe"); !errors.Is(err, reason) {
		t.Errorf("error %v", err)
	}
}
