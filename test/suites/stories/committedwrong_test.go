package stories_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/pinning"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/rpmostree"
)

// TestCommittedWrong: a new deployment that is not what was asked for is found right after
// the commit, and removed again with the reason. The next run arrives.
func TestCommittedWrong(t *testing.T) {
	spoilFile := func(h *hostdir.Host, next string) error {
		return os.WriteFile(filepath.Join(next, pinning.DropInPath), []byte("spoiled"), 0o644)
	}
	for _, c := range []struct {
		name, commits string
		spoil         func(h *hostdir.Host, next string) error
		boot          func(t *testing.T, h *hostdir.Host) error
	}{
		{"a file, ostree", "finalize-staged", spoilFile, func(t *testing.T, h *hostdir.Host) error { _, err := bootWith(t, h, "ostree"); return err }},
		{"a file, rpm-ostree", "finalize-staged", spoilFile, func(t *testing.T, h *hostdir.Host) error { _, err := bootWith(t, h, "rpm-ostree"); return err }},
		{"a file, in the initramfs", "deploy", spoilFile, func(t *testing.T, h *hostdir.Host) error {
			notes, err := bootEarly(t, h, &place{Initramfs: &initramfs.Initramfs{}})
			if strings.Contains(notes, "cannot trust") { // the initramfs steps aside
				err = errors.New(notes)
			}
			return err
		}},
		{"the boot entry", "finalize-staged", func(h *hostdir.Host, _ string) error {
			entries, err := filepath.Glob(h.Path("/boot/loader/entries/*.conf"))
			for _, entry := range entries {
				text, rerr := os.ReadFile(entry)
				if err = rerr; err == nil && strings.Contains(string(text), "nosmt") {
					err = os.WriteFile(entry, []byte(strings.ReplaceAll(string(text), "nosmt", "smt")), 0o644)
				}
			}
			return err
		}, func(t *testing.T, h *hostdir.Host) error { _, err := bootWith(t, h, "ostree"); return err }},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 4)
			h := newHost(t)
			h.InstallRpmOstree(rpmostree.Control{})
			before, err := filepath.Glob(filepath.Join(h.Physical(), "ostree/deploy/os/deploy/*.0"))
			must(t, err)
			spoiled := 0
			h.Ostree.Fail = func(call int, after bool) error {
				if !after || h.Ostree.Calls[call-1] != c.commits {
					return nil
				}
				now, err := filepath.Glob(filepath.Join(h.Physical(), "ostree/deploy/os/deploy/*.0"))
				for _, d := range now {
					if err == nil && !slices.Contains(before, d) {
						spoiled++
						err = c.spoil(h, d)
					}
				}
				return err
			}
			failure := c.boot(t, h)
			if failure == nil || spoiled != 1 || !strings.Contains(failure.Error(), "cannot trust the new") || !strings.Contains(failure.Error(), "the next boot is the one from before") {
				t.Fatalf("spoiled %d times: %v", spoiled, failure)
			}
			// The initramfs steps aside, and says why.
			record := newMachine(t, h).Progress
			must(t, record.Open())
			if failed := record.Content.Error; c.commits != "deploy" && (failed == nil || !strings.Contains(failed.Message, "cannot trust the new")) {
				t.Errorf("the journal has the error %+v", failed)
			}
			h.Boot()
			expectOld(t, h)
			h.Ostree.Fail = nil
			must(t, c.boot(t, h))
			h.Boot()
			must(t, boot(t, h))
			expectNew(t, h)
			expectClosed(t, h)
		})
	}
}
