package firstboot_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/fault"
	"machine-pivot/firstboot"
	"machine-pivot/pinning"
	"machine-pivot/pivot"
	"machine-pivot/test/hostdir"
)

// askServed writes the encapsulated MachineConfig as a config server has it: its
// config is empty, for Ignition has written the files.
func askServed(h *hostdir.Host, argument string) {
	h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil,
		`{"spec":{"osImageURL":%q,"kernelArguments":[%q],"fips":false,"config":{"ignition":{"version":"9.9.9"}}}}`, h.Image, argument))
}

// served is a host on which Ignition has done its part.
func served(t *testing.T) *hostdir.Host {
	t.Helper()
	h := hostdir.New(t)
	pin(t, h, "0-1")
	h.Write(pinning.DropInDir+"/00-default", []byte("[crio.runtime.workloads.builder]\nactivation_annotation = \"io.builder\"\n"))
	askServed(h, "quiet")
	return h
}

// targetFiles are the paths in the journal's target.
func targetFiles(t *testing.T, h *hostdir.Host) []string {
	t.Helper()
	r, err := pivot.JournalIn(h.Root).Load()
	if err != nil {
		t.Fatal(err)
	}
	return r.Target.Paths()
}

func verify(t *testing.T, h *hostdir.Host) string {
	t.Helper()
	m := machine(t, h)
	differences, err := m.Verify()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(differences, "\n")
}

// What Ignition wrote arrives in the new system, costs no change of its own, and
// is verified from then on.
func TestFilesOfIgnition(t *testing.T) {
	h := served(t)
	plan := firstboot.FirstBoot{Machine: machine(t, h), File: firstboot.EncapsulatedPath}
	if p, err := plan.Plan(t.Context()); err != nil || len(p.Files) != 0 || p.Reboots != 1 {
		t.Errorf("plan %+v, %v", p, err)
	}
	content := h.Read(pinning.DropInPath)
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	if h.Version() != "B.2" || h.Reboots != 1 || string(h.Read(pinning.DropInPath)) != string(content) {
		t.Errorf("version %s after %d reboots, drop-in %q", h.Version(), h.Reboots, h.Read(pinning.DropInPath))
	}
	expectClosed(t, h)
	if got := targetFiles(t, h); !slices.Equal(got, []string{pinning.DropInPath, pinning.KubeletPath}) {
		t.Errorf("files of the target %q", got)
	}
	if got := verify(t, h); got != "" {
		t.Errorf("at its target: %s", got)
	}
	if err := os.Remove(h.Path(pinning.KubeletPath)); err != nil {
		t.Fatal(err)
	}
	if got := verify(t, h); !strings.Contains(got, "file "+pinning.KubeletPath+": missing") {
		t.Errorf("without kubelet's file: %q", got)
	}
}

// A new system that comes up without them is not what was asked for.
func TestFilesOfIgnitionLost(t *testing.T) {
	h := served(t)
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	if err := os.Remove(h.Path(pinning.DropInPath)); err != nil {
		t.Fatal(err)
	}
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	if h.Read(firstboot.EncapsulatedPath) == nil || h.Reboots != 2 {
		t.Fatalf("closed without its files, or not mended: %d reboots", h.Reboots)
	}
	h.Boot()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, h)
	if h.Read(pinning.DropInPath) == nil || h.Version() != "B.2" {
		t.Errorf("version %s, drop-in %q", h.Version(), h.Read(pinning.DropInPath))
	}
}

// Files that are refused can be corrected where they are.
func TestFilesOfIgnitionCorrected(t *testing.T) {
	h := served(t)
	pin(t, h, "0-9")
	if err := boot(t, h); fault.KindOf(err) != fault.BadInput {
		t.Fatalf("error %v", err)
	}
	pin(t, h, "0,3")
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, h)
	if got := string(h.Read(pinning.DropInPath)); h.Reboots != 1 || !strings.Contains(got, `"0,3"`) {
		t.Errorf("%d reboots, drop-in %q", h.Reboots, got)
	}
}

// What the old image brings the new one need not bring.
func TestFilesOfTheImage(t *testing.T) {
	h := served(t)
	for _, path := range []string{pinning.DropInPath, pinning.KubeletPath} {
		h.Write("/usr"+path, h.Read(path))
	}
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, h)
	if h.Reboots != 1 || h.Read(pinning.DropInPath) != nil || len(targetFiles(t, h)) != 0 {
		t.Errorf("%d reboots, drop-in %q, files of the target %q", h.Reboots, h.Read(pinning.DropInPath), targetFiles(t, h))
	}
}
