package firstboot_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/fault"
	"machine-pivot/test/oscontainer"
	"machine-pivot/test/rpmostree"
)

// TestNativeImage: an ostree-native container is imported once, and rpm-ostree
// finds it there and asks no registry; one that knows no containers is not asked
// (P5). Each time there is one reboot.
func TestNativeImage(t *testing.T) {
	derived := oscontainer.WithDerived(oscontainer.File("usr/share/derived", "derived"), oscontainer.File("etc/derived.conf", "derived"))
	for _, c := range []struct {
		name, engine, version string
		rebase                bool
		opts                  []oscontainer.Option
	}{
		{"by rpm-ostree", "rpm-ostree", "2026.2", true, nil}, {"by a rpm-ostree without containers", "rpm-ostree", "2021.14", false, nil},
		{"beside rpm-ostree", "auto", "2026.2", false, nil}, {"with a derived layer", "auto", "2026.2", false, []oscontainer.Option{derived}},
		{"with a derived layer, by rpm-ostree", "rpm-ostree", "2026.2", true, []oscontainer.Option{derived}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.InstallRpmOstree(rpmostree.Control{Version: c.version})
			bare := filepath.Join(t.TempDir(), "bare")
			for _, argv := range [][]string{
				{"ostree", "init", "--repo=" + bare, "--mode=bare"},
				{"ostree", "pull-local", "--repo=" + bare, h.Archive, h.Commit},
			} {
				if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", argv, err, out)
				}
			}
			img, err := oscontainer.Encapsulated(bare, h.Commit, append(c.opts, oscontainer.WithWorkDir(t.TempDir()))...)
			if err != nil {
				t.Fatal(err)
			}
			digest, err := h.Registry.Push(t.Context(), "os/native", "b", img)
			if err != nil {
				t.Fatal(err)
			}
			h.Image = h.Registry.Host() + "/os/native@" + digest
			ask(t, h)
			notes, err := bootWith(t, h, c.engine)
			if err != nil {
				t.Fatal(err, fault.HintOf(err), notes)
			}
			if rebased := strings.Contains(strings.Join(verbsOf(t, h), " "), "rebase"); rebased != c.rebase {
				t.Errorf("calls %q, notes %s", verbsOf(t, h), notes)
			}
			h.Boot()
			if _, err := bootWith(t, h, c.engine); err != nil {
				t.Fatal(err)
			}
			expectNew(t, h)
			expectClosed(t, h)
			if h.Reboots != 1 {
				t.Errorf("%d reboots asked for", h.Reboots)
			}
			booted, err := h.Sysroot().Booted()
			if err != nil || booted.Origin.ContainerImageReference() != "ostree-unverified-registry:"+h.Image {
				t.Errorf("origin %s, %v", booted.Origin.Bytes(), err)
			}
			if got := string(h.Read("/etc/derived.conf")); c.opts != nil && got != "derived" {
				t.Errorf("the derived layer's file: %q", got)
			}
		})
	}
}
