package stories_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/test/worlds/hostdir"
)

// TestChangeBeforeTheReboot: before the reboot of a change, or of a rollback, another MachineConfig with another image
// starts from the running system. Nothing fails for good, the initramfs keeps its files, and kernel and extension stay
// if they are asked for again.
func TestChangeBeforeTheReboot(t *testing.T) {
	h, extensions := extensionsHost(t, rpms)
	askPackages(h, extensions, "realtime", `"usbguard"`)
	must(t, bootAuto(t, h))
	h.Boot()
	must(t, bootAuto(t, h))
	expectClosed(t, h)
	booted, err := h.Sysroot().Booted()
	must(t, err)
	// as rpm-ostree protects the base of a layered deployment
	_, err = h.Run(t.Context(), "ostree", "refs", "--repo="+h.Sysroot().RepoPath(), "--create=rpmostree/base/0", booted.Base.String())
	must(t, err)
	h.SetOrigin(string(booted.Origin.Bytes()) + "\n[rpmostree]\ninitramfs-etc=/etc/crypttab;\n")
	h.Write("/etc/crypttab", []byte("luks-1 UUID=1\n"))

	must(t, rollback(t, h))
	applyImage(t, h, "C", "")
	wantLayers(t, h, "map[rpmostree/initramfs-etc:[/etc/crypttab]]")
	applyImage(t, h, "D", "")
	wantLayers(t, h, "map[rpmostree/initramfs-etc:[/etc/crypttab]]")
	same := fmt.Sprintf(`,"kernelType":"realtime","extensions":["usbguard"],"baseOSExtensionsContainerImage":%q`, extensions)
	applyImage(t, h, "E", same)
	wantLayers(t, h, "map[overrides/remove:[kernel kernel-core kernel-modules] packages/requested:[kernel-rt-core kernel-rt-modules kernel-rt-modules-extra usbguard] rpmostree/initramfs-etc:[/etc/crypttab]]")
	h.Boot()
	drift, err := newMachine(t, h).Verify(t.Context())
	if err != nil || len(drift) > 0 || string(h.Read("/usr/share/image")) != "E" {
		t.Errorf("drift %q, %v; image %s", drift, err, h.Read("/usr/share/image"))
	}
}

// applyImage applies a MachineConfig with a new image.
func applyImage(t *testing.T, h *hostdir.Host, name, more string) {
	t.Helper()
	h.PutIntoNext(map[string]string{"/usr/share/image": name})
	m := newMachine(t, h)
	must(t, m.UseEngine("auto"))
	record := fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"osImageURL":%q,"kernelArguments":["nosmt"]%s}}`, name, h.Push(h.NativeImage()), more)
	changed, err := (&day2.Apply{Machine: m, Config: day2.Config{File: name, Data: []byte(record)}}).Run(t.Context(), day2.RunOptions{})
	if err != nil || !changed {
		t.Errorf("apply %s: %v, %v", name, changed, err)
	}
}

// wantLayers checks what the next boot changes of its image.
func wantLayers(t *testing.T, h *hostdir.Host, want string) {
	t.Helper()
	next, err := h.Sysroot().Default()
	must(t, err)
	if got := fmt.Sprint(next.Origin.Layers()); got != want || !strings.HasSuffix(next.Entry.Options, " nosmt") {
		t.Errorf("the next boot changes %s, want %s; options %q", got, want, next.Entry.Options)
	}
}
