package stories_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
)

// installedByBootc returns a host as "bootc install" leaves it, and the tag of the next system.
func installedByBootc(t *testing.T) (h *hostdir.Host, tag string) {
	t.Helper()
	h = hostdir.New(t)
	h.Serve(h.NativeImage(oscontainer.WithChunks(2)))
	h.InstallByBootc("quay.example/os:installed")
	h.Write(host.BootcPath, nil)
	return h, h.Registry.Host() + "/os/native:b"
}

// withoutOstree returns the kernel arguments of the running system's boot entry, but for ostree=.
func withoutOstree(h *hostdir.Host) string {
	return kargs.Split(h.Options()).WithoutOstree().String()
}

// TestInstalledByBootc: the first boot of a host from "bootc install", in its stateroot, with its boot entries and
// its storage for application images, and without Ignition.
func TestInstalledByBootc(t *testing.T) {
	h, _ := installedByBootc(t)
	if s, err := newMachine(t, h).Status(t.Context()); err != nil || s.Booted.Stateroot != "default" || s.Booted.Image.Follows().String() != "quay.example/os:installed" {
		t.Errorf("before its first boot: %+v, %v", s.Booted, err)
	}
	h.Write("/etc/local", []byte("a change of this machine\n"))
	ask(t, h)
	must(t, boot(t, h))
	all, err := h.Sysroot().Deployments()
	must(t, err)
	if h.Reboots != 1 || all[0].Checksum.String() == all[1].Checksum.String() || all[0].Stateroot != "default" {
		t.Fatalf("%d reboots, deployments %s and %s", h.Reboots, all[0].ID(), all[1].ID())
	}
	entry := string(h.Read("/boot/loader/entries/" + all[0].Entry.File))
	if !strings.Contains(entry, "\nlinux /boot/ostree/default-") || !strings.Contains(entry, "\ninitrd /boot/ostree/default-") {
		t.Errorf("the boot entry is\n%s", entry)
	}
	h.Boot()
	must(t, boot(t, h))
	expectClosed(t, h)
	if want := `root=UUID=6d1a rw nosmt hugepagesz=1G hugepages=4 acpi_osi="!Windows 2020"`; h.Version() != "B.2" || withoutOstree(h) != want {
		t.Errorf("version %s with %s, want %s", h.Version(), withoutOstree(h), want)
	}
	if got := string(h.Read("/etc/local")); got != "a change of this machine\n" || h.Read("/etc/crio/crio.conf.d/50-workload-partitioning.conf") == nil {
		t.Errorf("/etc/local has %q", got)
	}
	if h.Reboots != 1 {
		t.Errorf("%d reboots", h.Reboots)
	}
}

// TestAfterReset: in a stateroot of "bootc install reset", which has only the kernel arguments root= and ostree=, a tag
// is followed. A rollback stays in the stateroot, and is refused before there is a deployment for it.
func TestAfterReset(t *testing.T) {
	h, tag := installedByBootc(t)
	h.Write("/etc/local", []byte("of the stateroot before\n"))
	h.Reset("state-2026-0")
	h.Write(host.BootcPath, nil)
	if h.Read("/etc/local") != nil || withoutOstree(h) != "root=UUID=6d1a" {
		t.Fatalf("after the reset: %s", withoutOstree(h))
	}
	before := h.Stateroot(1)
	err := rollback(t, h)
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "but the running one in stateroot state-2026-0") || !strings.Contains(fault.HintOf(err), "default-") {
		t.Errorf("a rollback to stateroot %s: %v (%s)", before, err, fault.HintOf(err))
	}
	r := day2.Rebase{Machine: newMachine(t, h), Image: tag, Append: []string{"quiet"}}
	_, err = r.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	h.Boot()
	expectStatusAt(t, h, pivot.PhaseDone)
	if h.Version() != "B.2" || withoutOstree(h) != "root=UUID=6d1a quiet" || h.Stateroot(0) != "state-2026-0" {
		t.Errorf("version %s with %s in stateroot %s", h.Version(), withoutOstree(h), h.Stateroot(0))
	}
	if differences, err := newMachine(t, h).Verify(t.Context()); err != nil || len(differences) > 0 {
		t.Errorf("it differs: %v, %v", differences, err)
	}
	all, err := h.Sysroot().Deployments()
	must(t, err)
	if !slices.ContainsFunc(all, func(d ostree.Deployment) bool { return d.Stateroot == "default" }) {
		t.Error("the deployment of the other stateroot is gone")
	}
	must(t, rollback(t, h))
	h.Boot()
	if h.Version() != "A.1" || h.Stateroot(0) != "state-2026-0" || withoutOstree(h) != "root=UUID=6d1a" {
		t.Errorf("after the rollback: version %s with %s in stateroot %s", h.Version(), withoutOstree(h), h.Stateroot(0))
	}
}
