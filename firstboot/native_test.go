package firstboot_test

import (
	"archive/tar"
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
	h.Image = h.PushNative(opts...)
	ask(t, h)
}

// TestComposefs: an image that boots only with composefs is refused, before anything is
// deployed, where ostree does not have it.
func TestComposefs(t *testing.T) {
	demands := oscontainer.WithDerived(oscontainer.File("usr/lib/ostree/prepare-root.conf", "[composefs]\nenabled = yes\n"))
	h := newHost(t)
	serveNative(t, h, demands)
	if err := boot(t, h); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "it boots only with composefs") || fault.HintOf(err) == "" {
		t.Errorf("error %v", err)
	}
	if h.Reboots != 0 || len(h.Ostree.Calls) != 0 {
		t.Errorf("%d reboots, calls %v", h.Reboots, h.Ostree.Calls)
	}
	h.Ostree.Features = "  - composefs\n"
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

// TestDerivedRefused (P6): an image that could not boot is refused before anything is
// deployed, and the machine stays as it is.
func TestDerivedRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		file oscontainer.Entry
		kind fault.Kind
		want string
	}{
		{"two kernels", oscontainer.File("usr/lib/modules/6.2/vmlinuz", "k"), fault.Refused, "2 kernels (6.1, 6.2)"},
		{"no name", oscontainer.File("usr/lib/os-release", "VERSION=x\n"), fault.Refused, "no PRETTY_NAME or ID"},
		{"signed", oscontainer.File("usr/lib/ostree/prepare-root.conf", "[composefs]\nenabled = signed\n"), fault.Refused, "boots only what is signed"},
		{"a pipe", oscontainer.Entry{Header: tar.Header{Name: "usr/fifo", Typeflag: tar.TypeFifo}}, fault.BadInput, `"usr/fifo"`},
		{"upwards", oscontainer.File("../x", "x"), fault.BadInput, "leads upwards"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			serveNative(t, h, oscontainer.WithDerived(c.file))
			if err := boot(t, h); fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
				t.Errorf("error %v (%s)", err, fault.HintOf(err))
			}
			if h.Reboots != 0 || len(h.Ostree.Calls) != 0 {
				t.Errorf("%d reboots, calls %v", h.Reboots, h.Ostree.Calls)
			}
			expectOld(t, h)
			if kept, err := filepath.Glob(h.Path("/sysroot/ostree/repo/refs/heads/pivot/*")); err != nil || len(kept) > 0 {
				t.Errorf("refs %q, %v", kept, err)
			}
		})
	}
}
