package stories_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/pinning"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// askServed writes the encapsulated MachineConfig as a config server provides it: its
// Ignition config is empty, because Ignition has already written the files.
func askServed(h *hostdir.Host, argument string) {
	h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil,
		`{"spec":{"osImageURL":%q,"kernelArguments":[%q],"fips":false,"config":{"ignition":{"version":"9.9.9"}}}}`, h.Image, argument))
}

// served returns a host on which Ignition has done its part.
func served(t *testing.T) *hostdir.Host {
	t.Helper()
	h := hostdir.New(t)
	pin(t, h, "0-1")
	h.Write(pinning.DropInDir+"/00-default", []byte("[crio.runtime.workloads.builder]\nactivation_annotation = \"io.builder\"\n"))
	askServed(h, "quiet")
	return h
}

// targetFiles returns the paths in the journal's target.
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
	m := newMachine(t, h)
	differences, err := m.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(pivot.Texts(differences), "\n")
}

// TestFilesOfIgnition: files that Ignition wrote are carried over to the new system, are no
// change of their own, and are verified from then on.
func TestFilesOfIgnition(t *testing.T) {
	h := served(t)
	plan := firstboot.FirstBoot{Machine: newMachine(t, h), File: firstboot.EncapsulatedPath}
	if p, err := plan.Plan(t.Context()); err != nil || len(p.Entries) != 0 || p.Reboots != 1 {
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

// TestFilesOfIgnitionAfterAPivotByHand: the target of a later pivot by hand includes
// the existing files, and a file that is lost after that is named.
func TestFilesOfIgnitionAfterAPivotByHand(t *testing.T) {
	h := served(t)
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	rebase := day2.Rebase{Machine: newMachine(t, h), Append: []string{"debug"}}
	if changed, err := rebase.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	h.Boot()
	if got := verify(t, h); got != "" {
		t.Errorf("at its target: %s", got)
	}
	if got := targetFiles(t, h); !slices.Equal(got, []string{pinning.DropInPath, pinning.KubeletPath}) {
		t.Errorf("files of the target %q", got)
	}
	if err := os.Remove(h.Path(pinning.KubeletPath)); err != nil {
		t.Fatal(err)
	}
	if got := verify(t, h); !strings.Contains(got, "file "+pinning.KubeletPath+": missing") {
		t.Errorf("without kubelet's file: %q", got)
	}
}

// TestFilesOfIgnitionLost: a new system that comes up without them is not at its
// target. They are restored, also by the try after one that failed.
func TestFilesOfIgnitionLost(t *testing.T) {
	for _, c := range []struct {
		name    string
		between func(*testing.T, *hostdir.Host)
	}{
		{name: "mended at once"},
		{name: "mended by the try after", between: failOnce},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := served(t)
			h.Write(pinning.DropInPath, append(h.Read(pinning.DropInPath), "# secret\n"...))
			content := string(h.Read(pinning.DropInPath))
			if err := boot(t, h); err != nil {
				t.Fatal(err)
			}
			h.Boot()
			if err := os.Remove(h.Path(pinning.DropInPath)); err != nil {
				t.Fatal(err)
			}
			if c.between != nil {
				c.between(t, h)
			}
			if err := boot(t, h); err != nil {
				t.Fatal(err)
			}
			if h.Read(machineconfig.CommittedPath) == nil || h.Reboots != 2 {
				t.Fatalf("closed without its files, or not mended: %d reboots", h.Reboots)
			}
			h.Boot()
			if err := boot(t, h); err != nil {
				t.Fatal(err)
			}
			expectClosed(t, h)
			if string(h.Read(pinning.DropInPath)) != content || h.Version() != "B.2" {
				t.Errorf("version %s, drop-in %q", h.Version(), h.Read(pinning.DropInPath))
			}
			if kept, err := filepath.Glob(h.Path("/var/lib/pivot/contents/*")); err != nil || len(kept) > 0 {
				t.Errorf("contents that nobody needs: %q, %v", kept, err)
			}
			if got := verify(t, h); got != "" {
				t.Errorf("at its target: %s", got)
			}
		})
	}
}

// TestFilesOfIgnitionLostTwice: the new system lacks a file, and its kept content cannot be read either. The file is named,
// and nothing is committed without it.
func TestFilesOfIgnitionLostTwice(t *testing.T) {
	for _, c := range []struct {
		name, want string
		kind       fault.Kind
		spoil      func(kept string) error
	}{
		{"removed", "the saved content of " + pinning.DropInPath + " is missing", fault.Refused, os.Remove},
		{"damaged", "the saved content of " + pinning.DropInPath + " is missing", fault.Refused, func(kept string) error { return os.WriteFile(kept, nil, 0o600) }},
		{"unreadable", "it is not a regular file", fault.Internal, func(kept string) error { return errors.Join(os.Remove(kept), os.Mkdir(kept, 0o700)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := served(t)
			digest := strings.TrimPrefix(string(hostfiles.DigestOf(h.Read(pinning.DropInPath))), "sha256:")
			must(t, boot(t, h))
			h.Boot()
			must(t, os.Remove(h.Path(pinning.DropInPath)))
			must(t, c.spoil(h.Path("/var/lib/pivot/contents/"+digest)))
			calls := len(h.Ostree.Calls)
			err := boot(t, h)
			if err == nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v (%d)", err, fault.KindOf(err))
			}
			if len(h.Ostree.Calls) != calls || h.Reboots != 1 {
				t.Errorf("calls %v, %d reboots", h.Ostree.Calls[calls:], h.Reboots)
			}
		})
	}
}

// failOnce makes one try that fails before its commit, and reboots.
func failOnce(t *testing.T, h *hostdir.Host) {
	t.Helper()
	h.Ostree.Fail = func(int, bool) error { return errors.New("error: power cut") }
	if err := boot(t, h); err == nil {
		t.Fatal("the cut was not noticed")
	}
	h.Ostree.Fail = nil
	h.Boot()
}

// TestFilesOfIgnitionCorrected: files that are refused can be corrected in place.
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

// TestFilesOfTheImage: unchanged files of the old image are not carried over.
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
