package hostfiles_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/test/tools/need"
)

// TestMakeGivesAwayWhatItMade: Make gives a link or directory its owner, and nothing else,
// even if another process moves a secret to its path at once.
func TestMakeGivesAwayWhatItMade(t *testing.T) {
	need.Root(t)
	for _, f := range []hostfiles.File{hostfiles.NewLink("/x", "target"), hostfiles.NewDirectory("/x", 0o755)} {
		f.UID, f.GID = 1234, 1234
		t.Run(f.Kind.String(), func(t *testing.T) {
			dir := t.TempDir()
			secret, path := filepath.Join(dir, "secret"), filepath.Join(dir, "x")
			moved := 0
			for range 3000 {
				makeSecret(t, secret)
				made, exchanged := makeAndExchange(f, path, secret)
				if exchanged {
					secret, path = path, secret // what was made is at the other path now
					moved++
				}
				if info, err := os.Stat(secret); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
					t.Fatalf("the secret has another owner: %v (Make: %v)", err, made)
				}
				must(t, os.RemoveAll(secret), os.RemoveAll(path))
			}
			if moved == 0 {
				t.Error("nothing was moved")
			}
		})
	}
}

// makeSecret makes a directory with a file.
func makeSecret(t *testing.T, path string) {
	t.Helper()
	must(t, os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "key"), nil, 0o600))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// makeAndExchange makes an entry at a path while another thread exchanges it with a secret as soon
// as it is there.
func makeAndExchange(f hostfiles.File, path, secret string) (made error, exchanged bool) {
	var over atomic.Bool
	ended := make(chan bool)
	go func() {
		for !over.Load() {
			if unix.Renameat2(unix.AT_FDCWD, secret, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE) == nil {
				ended <- true
				return
			}
		}
		ended <- false
	}()
	made = hostfiles.OS{}.Make(path, f, "")
	over.Store(true)
	return made, <-ended
}

// TestMakeLabelsLinks: the label of a link is its own, not that of its target.
func TestMakeLabelsLinks(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	target, path := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	must(t, os.WriteFile(target, nil, 0o600))
	const label = "system_u:object_r:etc_t:s0"
	must(t, hostfiles.OS{}.Make(path, hostfiles.NewLink("/link", target), label))
	for at, want := range map[string]string{path: label, target: ""} {
		if got, err := hostfiles.LabelOf(at); err != nil || got != want {
			t.Errorf("%s has the label %q, %v; want %q", at, got, err, want)
		}
	}
}
