package rpmostree_test

import (
	"os"
	"slices"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/rpmostree"
	"machine-pivot/test/worlds/hostdir"
)

// TestKeysOfOthers: the next boot's entry has the keys that others gave the running system's, such as for GRUB's
// password. It has none that libostree gives only to entries which are not the default. So it is for a new deployment,
// and for one that becomes the default again.
func TestKeysOfOthers(t *testing.T) {
	for _, c := range []struct{ engine, version string }{{"ostree", hostdir.LockInState}, {"ostree", hostdir.KeepsKeys}, {"direct", hostdir.LockInState}} {
		t.Run(c.engine+" "+c.version, func(t *testing.T) {
			h := hostdir.New(t)
			h.Ostree.Version = c.version
			h.RepoConfig("sysroot.bls-append-except-default", `grub_users=""`)
			asked, protected, owned := ostree.Key{Name: "grub_arg", Value: "--unrestricted"}, ostree.Key{Name: "grub_users", Value: `""`}, ostree.Key{Name: "x-options-source-tuned", Value: "a=1"}
			addKeys(t, h, 0, asked, owned)
			r := request(t, h)
			e := merging(h)[c.engine]
			must(t, e.Prepare(t.Context(), r))
			must(t, e.Commit(t.Context(), r))
			expect := func(when string, entry int, want ...ostree.Key) {
				t.Helper()
				all, err := h.Sysroot().Deployments()
				must(t, err)
				got := all[entry].Entry.ForeignKeys()
				slices.SortFunc(got, func(a, b ostree.Key) int { return len(a.Name) - len(b.Name) })
				if !slices.Equal(got, want) {
					t.Errorf("%s: entry %d has the keys %q, want %q", when, entry, got, want)
				}
			}
			expect("committed", 0, asked, owned)
			protect := func() (other ostree.DeploymentRef) { // as libostree does, which the stand-in for set-default does not
				t.Helper()
				all, err := h.Sysroot().Deployments()
				must(t, err)
				if !slices.Contains(all[1].Entry.Others, protected) {
					addKeys(t, h, 1, protected)
				}
				return all[1].DeploymentRef
			}
			boots := rpmostree.Default{Sysroot: h.Sysroot(), Run: h.Run, Note: func(string) {}}
			must(t, boots.Make(t.Context(), protect()))
			expect("back", 0, asked, owned)
			_, err := boots.Startable(protect())
			must(t, err)
			expect("to be started once", 1, asked, owned)
		})
	}
}

// TestRollbackBesideOthers: entries of others are not counted, whatever their version; a default that cannot be changed
// leaves the other entry as it was.
func TestRollbackBesideOthers(t *testing.T) {
	h := hostdir.New(t)
	h.Ostree.Version = hostdir.LockInState
	h.RepoConfig("sysroot.bls-append-except-default", `grub_users=""`)
	r := request(t, h)
	e := merging(h)["ostree"]
	must(t, e.Prepare(t.Context(), r))
	must(t, e.Commit(t.Context(), r))
	all, err := h.Sysroot().Deployments()
	must(t, err)
	for n, d := range all {
		text := h.Read("/boot/loader/entries/" + d.Entry.File)
		h.Write("/boot/loader/entries/rescue-"+string(rune('0'+n))+".conf", append([]byte("version 99\noptions single\n"), text...))
	}
	must(t, os.Mkdir(h.Path("/boot/loader/entries/ostree-x.conf"), 0o755))
	boots := rpmostree.Default{Sysroot: h.Sysroot(), Run: h.Run, Note: func(string) {}}
	before := h.Read("/boot/loader/entries/" + all[1].Entry.File)
	h.Ostree.Fail = func(int, bool) error { return os.ErrInvalid }
	if err := boots.Make(t.Context(), all[1].DeploymentRef); err == nil || string(h.Read("/boot/loader/entries/"+all[1].Entry.File)) != string(before) {
		t.Errorf("error %v", err)
	}
	h.Ostree.Fail = nil
	must(t, boots.Make(t.Context(), all[1].DeploymentRef))
	now, err := h.Sysroot().Deployments()
	must(t, err)
	if now[0].ID() != all[1].ID() || len(now) != 2 {
		t.Errorf("the default is %s of %d", now[0].ID(), len(now))
	}
}

// addKeys adds keys to a boot entry.
func addKeys(t *testing.T, h *hostdir.Host, entry int, keys ...ostree.Key) {
	t.Helper()
	all, err := h.Sysroot().Deployments()
	must(t, err)
	file := "/boot/loader/entries/" + all[entry].Entry.File
	text := h.Read(file)
	for _, k := range keys {
		text = append(text, k.Name+" "+k.Value+"\n"...)
	}
	h.Write(file, text)
}
