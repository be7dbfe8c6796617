package initramfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/initramfs"
	"machine-pivot/test/tools/need"
)

func needRoot(t *testing.T) {
	t.Helper()
	need.Root(t)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, put(path, content))
}

func put(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// elsewhere runs a test of this program again in new namespaces, with an environment variable
// by which the test recognizes this. There is always a mount namespace with a tmpfs over the
// directories that it reads, so that no test changes this machine. setup is shell code to run
// there first.
func elsewhere(t *testing.T, variable, setup string, namespaces ...string) (output string, err error) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	script := "for d in /run /etc /usr/lib/systemd /lib/systemd; do [ -d $d ] && mount -t tmpfs tmpfs $d; done; " +
		setup + `exec "$0" -test.run='^` + test + `$' -test.v`
	cmd := exec.Command("unshare", append(append([]string{"--mount"}, namespaces...), "sh", "-c", script, os.Args[0])...)
	cmd.Env = []string{variable + "=1", "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// inNamespace runs f in a private mount namespace. f must not end the test.
func inNamespace(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		err := hostfiles.EnterNamespace()
		if err == nil {
			err = f()
		}
		done <- err
	}()
	must(t, <-done)
}

// childRoot makes TestEnter act as the program that calls Enter.
const childRoot = "TEST_ENTER_ROOT"

// TestEnter (P44): the program is executed again with the same PID, and has the kernel's file systems
// mounted in the system's root, invisible to other processes.
func TestEnter(t *testing.T) {
	if root := os.Getenv(childRoot); root != "" {
		enterHere(t, root)
		return
	}
	needRoot(t)
	root := t.TempDir()
	for _, dir := range []string{"proc", "sys", "dev", "run"} {
		must(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	write(t, root+"/usr/share/bundle.pem", "x")
	must(t, os.MkdirAll(root+"/etc/ssl/certs", 0o755))
	must(t, os.Symlink("/usr/share/bundle.pem", root+"/etc/ssl/certs/ca-certificates.crt")) // an absolute target, resolved below the root
	must(t, os.MkdirAll(root+"/usr/local/share/ca-certificates", 0o755))
	cmd := exec.Command(os.Args[0], "-test.run=^TestEnter$", "-test.v")
	cmd.Env = []string{childRoot + "=" + root}
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	must(t, cmd.Start())
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, output.String())
	}
	for _, want := range []string{
		fmt.Sprintf("begun as %d\n", cmd.Process.Pid), fmt.Sprintf("inside as %d\n", cmd.Process.Pid),
		"SSL_CERT_FILE=" + root + "/usr/share/bundle.pem\n", "SSL_CERT_DIR=" + root + "/usr/local/share/ca-certificates\n",
	} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, output.String())
		}
	}
	if _, err := os.Stat(root + "/proc/self"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("others see its mounts: %v", err)
	}
}

func enterHere(t *testing.T, root string) {
	fmt.Printf("begun as %d\n", os.Getpid())
	must(t, initramfs.Enter(root))
	fmt.Printf("inside as %d\n", os.Getpid())
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		fmt.Printf("%s=%s\n", name, os.Getenv(name))
	}
	for _, path := range []string{"/proc/self/exe", "/sys/kernel", "/dev/null", "/run"} {
		outside, err := os.Stat(path)
		must(t, err)
		if inside, err := os.Stat(root + path); err != nil || !os.SameFile(outside, inside) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestEnterFails: if the root lacks the mount points, the error is left to the started system.
func TestEnterFails(t *testing.T) {
	needRoot(t)
	t.Setenv("PIVOT_NAMESPACE", fmt.Sprint(os.Getpid()))
	root := t.TempDir()
	inNamespace(t, func() error {
		if err := initramfs.Enter(root); fault.KindOf(err) != fault.Later {
			t.Errorf("error %v", err)
		}
		return nil
	})
}
