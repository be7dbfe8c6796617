package firstboot_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/fault"
	"machine-pivot/test/hostdir"
	"machine-pivot/test/oscontainer"
	"machine-pivot/test/rpmostree"
)

// serveNative asks for the host's image as an ostree-native container.
func serveNative(t *testing.T, h *hostdir.Host, opts ...oscontainer.Option) {
	t.Helper()
	bare := filepath.Join(t.TempDir(), "bare")
	for _, argv := range [][]string{
		{"ostree", "init", "--repo=" + bare, "--mode=bare"},
		{"ostree", "pull-local", "--repo=" + bare, h.Archive, h.Commit},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	img, err := oscontainer.Encapsulated(bare, h.Commit, append(opts, oscontainer.WithWorkDir(t.TempDir()))...)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := h.Registry.Push(t.Context(), "os/native", "b", img)
	if err != nil {
		t.Fatal(err)
	}
	h.Image = h.Registry.Host() + "/os/native@" + digest
	ask(t, h)
}

// TestComposefs: an image that boots only with composefs is refused, before anything is
// deployed, where ostree does not have it; nothing is left of it. So is one for which
// ostree makes none, though it says it could.
func TestComposefs(t *testing.T) {
	demands := oscontainer.WithDerived(oscontainer.File("usr/lib/ostree/prepare-root.conf", "[composefs]\nenabled = yes\n"))
	h := newHost(t)
	serveNative(t, h, demands)
	refused := func(why string) {
		t.Helper()
		if err := boot(t, h); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), why) || fault.HintOf(err) == "" {
			t.Errorf("error %v", err)
		}
		if h.Reboots != 0 {
			t.Errorf("%d reboots", h.Reboots)
		}
	}
	refused("boots only from an image of composefs")
	if len(h.Ostree.Calls) != 0 {
		t.Errorf("calls %v", h.Ostree.Calls)
	}
	for _, ref := range h.Refs() {
		if strings.HasPrefix(ref, "pivot/") || strings.HasPrefix(ref, "ostree/container/image/") {
			t.Errorf("ref %s is left", ref)
		}
	}
	h.Ostree.Version, h.Ostree.Features = "2025.2", "  - composefs\n"
	refused("there is no .ostree.cfs")
	if staged, err := h.Sysroot().Staged(); staged != nil || err != nil {
		t.Errorf("staged %v, %v", staged, err)
	}
	h.Ostree.Composefs = true
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	expectNew(t, h)
}

// TestNativeImage: an ostree-native container is imported once, and rpm-ostree
// deploys what is there. Its daemon cannot ask the registry: the pull secret is
// kubelet's alone (D23). One that knows no containers is not asked (P5). Each time
// there is one reboot.
func TestNativeImage(t *testing.T) {
	derived := oscontainer.WithDerived(oscontainer.File("usr/share/derived", "derived"), oscontainer.File("etc/derived.conf", "derived"))
	for _, c := range []struct {
		name, engine, version, packages string
		rebase                          bool
		opts                            []oscontainer.Option
	}{
		{"by rpm-ostree", "rpm-ostree", "2026.2", "", true, nil},
		{"with packages", "auto", "2026.2", "strace;", true, nil},
		{"by a rpm-ostree without containers", "rpm-ostree", "2021.14", "", false, nil},
		{"beside rpm-ostree", "auto", "2026.2", "", false, nil},
		{"with a derived layer", "auto", "2026.2", "", false, []oscontainer.Option{derived}},
		{"with a derived layer, by rpm-ostree", "rpm-ostree", "2026.2", "", true, []oscontainer.Option{derived}},
		{"with a derived layer and packages", "auto", "2026.2", "strace;", true, []oscontainer.Option{derived}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.InstallRpmOstree(rpmostree.Control{Version: c.version})
			if c.packages != "" {
				h.Layer(c.packages)
			}
			h.ReadOnlyTmp()
			serveNative(t, h, c.opts...)
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
			if got := booted.Origin.Value("packages", "requested"); got != c.packages || (booted.Checksum == booted.Base) != (c.packages == "") {
				t.Errorf("packages %q on %s, booted %s", got, booted.Base, booted.Checksum)
			}
			repo, err := h.ReadRepo()
			if err != nil {
				t.Fatal(err)
			}
			// By it rpm-ostree and bootc find the image for the next update.
			if kept, err := repo.ResolveRef(rpmostree.ImageRef("ostree-unverified-registry:" + h.Image)); err != nil || kept != booted.Base {
				t.Errorf("the image's ref is %s, %v, want %s", kept, err, booted.Base)
			}
		})
	}
}
