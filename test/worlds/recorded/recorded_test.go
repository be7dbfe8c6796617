package recorded_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/recorded"
	"machine-pivot/test/worlds/vm"
)

// TestMoments writes two files, of which only the first is made durable, and rebuilds the disk as it was before
// both, between them and after them.
func TestMoments(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts a file system")
	}
	if missing := recorded.Missing(); len(missing) > 0 {
		need.Lacking(t, "cannot record a disk here: lacking "+strings.Join(missing, ", "))
	}
	contents, dir := t.TempDir(), t.TempDir()
	write(t, filepath.Join(contents, "before"), false)
	disk, err := recorded.Mount(t.Context(), dir, contents, 320)
	if err != nil {
		t.Fatal(err)
	}
	moments := []time.Time{time.Now()}
	write(t, disk.Path("durable"), true)
	moments = append(moments, time.Now().Add(time.Second)) // later than the next look at the log
	write(t, disk.Path("volatile"), false)
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
	recording, counts, err := disk.Recording(moments)
	if err != nil {
		t.Fatal(err)
	}
	if counts[0] >= counts[1] {
		t.Errorf("%d entries before the first file, %d after it", counts[0], counts[1])
	}
	for i, want := range []string{"before", "before durable"} {
		m := vm.Machine{Disk: filepath.Join(t.TempDir(), "disk")}
		if err := recording.Rebuild(t.Context(), vm.Cut{Before: counts[i], Drop: true, Seed: 1}, m.Disk); err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, name := range []string{"before", "durable"} {
			if content, err := m.ReadFile("/" + name); err == nil && string(content) == text {
				found = append(found, name)
			}
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("moment %d: found %q, want %q", i, got, want)
		}
	}
}

// text is more than a file system keeps in an inode.
var text = strings.Repeat("content\n", 10000)

func write(t *testing.T, path string, durable bool) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if durable {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}
