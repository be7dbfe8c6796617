package ostree

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// TestFailedFlush: the kernel reports a write error to one sync only. If that one ran in the
// background, the import fails nevertheless, and nothing is trusted to be on the disk.
func TestFailedFlush(t *testing.T) {
	path := t.TempDir()
	for _, dir := range []string{"objects", "tmp", "state", "refs/heads"} {
		if err := os.MkdirAll(filepath.Join(path, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(path, "config"), []byte("[core]\nrepo_version=1\nmode=bare\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRepo(path)
	if err != nil {
		t.Fatal(err)
	}
	im, err := r.BeginImport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	im.flusher.failed = unix.EIO
	commit, err := im.AddObjectSet(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	im.mu.Lock()
	im.flush()
	im.mu.Unlock()
	im.flusher.running.Wait()
	if im.flusher.synced != 0 {
		t.Errorf("objects up to epoch %d count as durable", im.flusher.synced)
	}
	if err := im.Finish(t.Context(), Root{commit, []string{"os"}}); !errors.Is(err, unix.EIO) {
		t.Errorf("error %v, want the one of the sync", err)
	}
	if _, err := r.ResolveRef("os"); err == nil {
		t.Error("the ref is set")
	}
	if err := im.Discard(); err != nil {
		t.Error(err)
	}
}

// TestStateWaits: who asks for an object that another goroutine is writing waits until it is written.
func TestStateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		im := &Import{objects: map[ObjectName]object{}}
		im.stateChanged = sync.NewCond(&im.mu)
		n := ObjectName{Type: DirMeta}
		im.objects[n] = object{state: beingWritten}
		got := make(chan objectState, 1)
		go func() { got <- im.state(n) }()
		synctest.Wait() // until it waits
		if len(got) > 0 {
			t.Errorf("the state is %v before it is written", <-got)
		}
		im.setState(n, isStaged)
		if state := <-got; state != isStaged {
			t.Errorf("the state is %v", state)
		}
	})
}
