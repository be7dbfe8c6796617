package hostfiles_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/test/tools/need"
)

// TestOverlayOfUsers: in an overlay, the directories that users own stay as they were when it
// was made, complete but for what libostree cannot merge, however much there is in them.
func TestOverlayOfUsers(t *testing.T) {
	need.Root(t)
	for _, c := range []struct {
		name, fill string
		stays      bool // what users change later is not seen
	}{
		{"small", "true", true},
		{"more than is copied", "truncate -s 65M app/large", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			etc := t.TempDir()
			must(t, os.Chmod(etc, 0o755))
			sh := func(script string) string {
				t.Helper()
				cmd := exec.Command("sh", "-ec", script)
				cmd.Dir = etc
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", script, err, out)
				}
				return string(out)
			}
			sh(`mkdir -p app/conf.d deep/er/own shared roots; mkfifo root-fifo app/conf.d/fifo shared/fifo deep/er/own/fifo
mknod app/null c 1 3; echo content > app/conf.d/file; ln -s nowhere app/link; chmod 4755 app/conf.d/file
chmod 1777 shared; chown -R 1500:1501 app deep/er/own; ` + c.fill)
			list := func() string {
				return sh("find . ! -name '*fifo' ! -name null ! -name large ! -path ./app/new -printf '%p %y %m %U:%G %l\n' | sort; cat app/conf.d/file")
			}
			must(t, unix.Setxattr(filepath.Join(etc, "app/conf.d"), "trusted.pivot", []byte("x"), 0))
			before := list()
			app, err := unix.Open(filepath.Join(etc, "app"), unix.O_PATH, 0) // as the user sees it
			must(t, err)
			defer unix.Close(app)
			roots, err := unix.Open(filepath.Join(etc, "roots"), unix.O_PATH, 0)
			must(t, err)
			defer unix.Close(roots)
			err = hostfiles.WithOverlays(func() error {
				if after := list(); after != before {
					t.Errorf("in the overlay there is\n%s, was\n%s", after, before)
				}
				value := make([]byte, 10)
				if n, err := unix.Getxattr(filepath.Join(etc, "app/conf.d"), "trusted.pivot", value); err != nil || string(value[:n]) != "x" {
					t.Errorf("in the overlay, the attribute is %q (%v)", value[:max(n, 0)], err)
				}
				if got := sh("find . -type p -o -type c"); got != "./root-fifo\n" {
					t.Errorf("in the overlay there are %s", got)
				}
				must(t, unix.Mknodat(app, "sneaked-fifo", unix.S_IFIFO|0o600, 0), unix.Renameat(app, "link", app, "moved-fifo"))
				if got := list(); c.stays && got != before {
					t.Errorf("after a change by the user the overlay has\n%s, was\n%s", got, before)
				}
				must(t, unix.Mknodat(roots, "later", unix.S_IFREG|0o600, 0))
				if got := sh("ls roots"); got != "later\n" {
					t.Errorf("a directory of root's is copied: %q", got)
				}
				if got := sh("find app -name '*sneaked*'"); c.stays && got != "" {
					t.Errorf("the overlay has %s, which the user has made later", got)
				}
				if got := sh("cat app/new"); got != "by root" {
					t.Errorf("the new file has %q", got)
				}
				return nil
			}, hostfiles.Overlay{Dir: etc, At: "/etc", Files: []hostfiles.File{hostfiles.NewFile("/etc/app/new", 0o644, []byte("by root"))}})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
