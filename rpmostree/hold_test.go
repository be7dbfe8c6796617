package rpmostree_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/worlds/hostdir"
	standin "machine-pivot/test/worlds/rpmostree"
)

// unlock unlocks what is staged as libostree does for others: it passes on all that it does not know.
func unlock(t *testing.T, h *hostdir.Host) {
	t.Helper()
	staged, err := h.Sysroot().Staged()
	must(t, err)
	state, err := staged.Unlocked(staged.KernelArguments, nil)
	must(t, err)
	dir := h.Sysroot().RunDir()
	must(t, os.WriteFile(filepath.Join(dir, ostree.StagedFile), state, 0o644))
	if err := os.Remove(filepath.Join(dir, ostree.LockFile)); !errors.Is(err, fs.ErrNotExist) {
		must(t, err)
	}
}

// TestHeldBack: who unlocks what is staged and reboots before the commit, as "bootc upgrade --apply" and "rpm-ostree
// finalize-deployment" do, boots the running system. The new image has no files and packages yet. Without the reboot
// the commit finds it, can be tried again, and succeeds then.
func TestHeldBack(t *testing.T) {
	for name, c := range map[string]struct {
		had, wanted pivot.Packages
		engine      func(h *hostdir.Host, notes *string) pivot.Engine
	}{
		"ostree": {engine: func(h *hostdir.Host, _ *string) pivot.Engine {
			return &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}
		}},
		"libostree beside rpm-ostree": {},
		"packages on top":             {wanted: wishes("rt")},
		"layered, another image":      {had: wishes("", "usbguard")},
		"layered, other packages":     {had: wishes("rt"), wanted: wishes("", "usbguard")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, repo := hostdir.New(t), (*repository)(nil)
			if c.had.IsZero() {
				h.InstallRpmOstree(standin.Control{})
				h.Ostree.Version = hostdir.LockInState
				repo = newRepository(t, h)
			} else {
				h, repo = layeredHost(t, standin.Control{}, c.had)
			}
			version, kernel := h.Version(), h.Options()
			var notes string
			e := pivot.Engine(engine(h, false, &notes))
			if c.engine != nil {
				e = c.engine(h, &notes)
			}
			r := requestOf(t, h, c.wanted, repo)
			r.Repository = func(ctx context.Context, names []string) (pivot.Repository, error) {
				if staged, err := h.Sysroot().Staged(); err != nil || staged != nil {
					t.Errorf("staged while packages are pulled: %+v, %v", staged, err)
				}
				return repo.fetch(ctx, names)
			}
			must(t, e.Prepare(t.Context(), r))
			unlock(t, h)
			if err := e.Commit(t.Context(), r); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "somebody else changed what was staged") {
				t.Errorf("commit of what is unlocked: %v", err)
			}
			h.Shutdown()
			if h.Version() != version || h.Options() != kernel {
				t.Errorf("booted version %s, %s", h.Version(), h.Options())
			}
			if stamp := string(h.Read("/boot/ostree/finalize-failure.stamp")); !strings.Contains(stamp, "Failed to find merge deployment") {
				t.Errorf("libostree says %q", stamp)
			}
			r = requestOf(t, h, c.wanted, repo)
			if e = engine(h, false, &notes); c.engine != nil {
				e = c.engine(h, &notes)
			}
			must(t, e.Prepare(t.Context(), r))
			must(t, e.Commit(t.Context(), r))
			h.Shutdown()
			if h.Version() != "B.2" || string(h.Read("/etc/new")) != "x" || !strings.HasSuffix(h.Options(), " nosmt") {
				t.Errorf("booted version %s, %s", h.Version(), h.Options())
			}
		})
	}
}

// TestStagedUnseen: what libostree stages is held back from the first moment at which others can see it. Its tool lets go of
// the sysroot's lock, for which they may wait, before it ends.
func TestStagedUnseen(t *testing.T) {
	h := hostdir.New(t)
	e := &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: func(ctx context.Context, argv ...string) ([]byte, error) {
		out, err := h.Run(ctx, argv...)
		if slices.Contains(argv, "--stage") {
			seen := make(chan *ostree.Staged)
			go func() { // what is mounted for the tool is not mounted for others
				staged, err := h.Sysroot().Staged()
				if err != nil {
					t.Error(err)
				}
				seen <- staged
			}()
			if staged := <-seen; staged != nil && !staged.Held {
				t.Error("others can finalize what the tool has staged")
			}
		}
		return out, err
	}}
	r := requestOf(t, h, pivot.Packages{}, nil)
	must(t, e.Prepare(t.Context(), r))
	if staged, err := h.Sysroot().Staged(); err != nil || staged == nil || !staged.Held {
		t.Errorf("staged: %+v, %v; want it held back", staged, err)
	}
	must(t, e.Commit(t.Context(), r))
}

// TestFinalizedBySomebodyElse: rpm-ostree's daemon stages by itself, so somebody can finalize that before it is held back.
// Then the error says what the next boot is, and another try replaces it by the whole system.
func TestFinalizedBySomebodyElse(t *testing.T) {
	h, repo := layeredHost(t, standin.Control{}, wishes("", "usbguard"))
	var notes string
	e := engine(h, false, &notes)
	e.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
		out, err := h.Run(ctx, argv...)
		if staged, serr := h.Sysroot().Staged(); argv[0] == "rpm-ostree" && serr == nil && staged != nil {
			unlock(t, h)
			_, ferr := h.Run(ctx, "ostree", "admin", "finalize-staged")
			must(t, ferr)
		}
		return out, err
	}
	r := requestOf(t, h, pivot.Packages{}, repo)
	if err := e.Prepare(t.Context(), r); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "somebody else has made it the next boot") {
		t.Fatalf("preparation of what is the next boot already: %v", err)
	}
	e = engine(h, false, &notes)
	r = requestOf(t, h, pivot.Packages{}, repo)
	must(t, e.Prepare(t.Context(), r))
	must(t, e.Commit(t.Context(), r))
	h.Shutdown()
	if h.Version() != "B.2" || string(h.Read("/etc/new")) != "x" || !strings.HasSuffix(h.Options(), " nosmt") {
		t.Errorf("booted version %s, %s", h.Version(), h.Options())
	}
}

// TestHeldBackFromFinalize: rpm-ostree's own command to finalize what is staged reboots into the running system, too.
func TestHeldBackFromFinalize(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	h.Ostree.Version = hostdir.LockInState
	var notes string
	must(t, engine(h, false, &notes).Prepare(t.Context(), request(t, h)))
	_, err := h.Run(t.Context(), "rpm-ostree", "finalize-deployment", "--allow-missing-checksum")
	must(t, err)
	h.Shutdown()
	if h.Version() != "A.1" {
		t.Errorf("booted version %s", h.Version())
	}
}
