package stories_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"machine-pivot/day2"
	"machine-pivot/day2/maintenance"
	"machine-pivot/day2/slot"
	"machine-pivot/day2/trial"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/identity"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/rehearsal"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
)

// boot runs the first boot once, as the unit does at each boot, until it ends or waits for
// the reboot.
func boot(t *testing.T, h *hostdir.Host) error { t.Helper(); return run(t, h, firstboot.FirstBoot{}) }

// run is boot with the options of a first boot.
func run(t *testing.T, h *hostdir.Host, b firstboot.FirstBoot) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reboot := h.Reboot
	h.Reboot = func(ctx context.Context) error { cancel(); return reboot(ctx) } // systemd stops us on its way down
	b.Machine, b.File = newMachine(t, h), firstboot.EncapsulatedPath
	return b.Run(ctx)
}

func newMachine(t *testing.T, h *hostdir.Host) *machine.Machine {
	t.Helper()
	clock := time.Now() // advances only when the retry sleeps
	return &machine.Machine{
		Features: []machine.Feature{day2.Downloads(), day2.Live(), identity.Feature(), trial.Feature(), rehearsal.Feature(), maintenance.Feature(), slot.Feature()},
		Host:     h.Host,
		Puller:   &osimage.Puller{Root: h.Root},
		Engine:   &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run, Space: h.Space},
		Retry: retry.Policy{
			First: time.Second, Cap: time.Minute, Bound: 5 * time.Minute, Now: func() time.Time { return clock },
			Sleep: func(_ context.Context, d time.Duration) error { clock = clock.Add(d); return nil },
		},
		Progress: &pivot.Progress{
			Journal: pivot.JournalIn(h.Root), Now: time.Now,
			Emit: func(e pivot.Event) {
				if e.Err != nil {
					t.Logf("%s: %v", e.Step, e.Err)
				}
			},
		},
	}
}

// ask writes the encapsulated MachineConfig that most tests use: image, kernel arguments and
// CPU pinning files.
func ask(t *testing.T, h *hostdir.Host) {
	t.Helper()
	set, err := pinning.ParseCPUSet("0-1")
	if err != nil {
		t.Fatal(err)
	}
	w := pinning.Workloads{"management": set}
	type object = map[string]any
	file := func(path string, content []byte) object {
		return object{"path": path, "mode": 420, "overwrite": true, "contents": object{"source": "data:;base64," + base64.StdEncoding.EncodeToString(content)}}
	}
	data, err := json.Marshal(object{"spec": object{
		"osImageURL": h.Image, "kernelArguments": []string{`nosmt hugepagesz=1G hugepages=4`, `acpi_osi="!Windows 2020"`}, "fips": false,
		"config": object{"ignition": object{"version": "3.2.0"}, "storage": object{"files": []object{
			file(pinning.DropInPath, pinning.DropIn(w)), file(pinning.KubeletPath, pinning.KubeletFile(w)),
		}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	h.Write(firstboot.EncapsulatedPath, data)
}

// expectOld checks that the running system is the old one, unchanged.
func expectOld(t *testing.T, h *hostdir.Host) {
	t.Helper()
	if v := h.Version(); v != "A.1" {
		t.Errorf("version %s runs, want A.1", v)
	}
	if strings.Contains(h.Options(), "nosmt") {
		t.Errorf("the old system's options are %q", h.Options())
	}
	for _, path := range []string{"/etc/crio", "/etc/kubernetes"} {
		if _, err := os.Lstat(h.Path(path)); err == nil {
			t.Errorf("the old system has %s", path)
		}
	}
}

// expectNew checks that the running system is the new one, complete.
func expectNew(t *testing.T, h *hostdir.Host) {
	t.Helper()
	if v := h.Version(); v != "B.2" {
		t.Errorf("version %s runs, want B.2", v)
	}
	if want := ` nosmt hugepagesz=1G hugepages=4 acpi_osi="!Windows 2020"`; !strings.HasSuffix(h.Options(), want) || strings.Count(h.Options(), "nosmt") != 1 {
		t.Errorf("options %q, want %s at the end", h.Options(), want)
	}
	if want := `root=LABEL=root rw keep="a b" $ignition_firstboot`; !strings.HasPrefix(strings.Replace(h.Options(), ostreeOption(h), "", 1), want) {
		t.Errorf("options %q do not keep %s", h.Options(), want)
	}
	for path, want := range map[string]string{
		pinning.DropInPath: `"cpuset" = "0-1"`, pinning.KubeletPath: `"cpuset": "0-1"`,
		"/etc/local": "a change of this machine", "/etc/default": "default of B.2",
	} {
		if got := string(h.Read(path)); !strings.Contains(got, want) {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
}

func ostreeOption(h *hostdir.Host) string {
	for option := range strings.FieldsSeq(h.Options()) {
		if strings.HasPrefix(option, "ostree=") {
			return option + " "
		}
	}
	return "no ostree="
}

// expectAccount (P16) checks the history of the one transaction: what each step took, in
// which boot.
func expectAccount(t *testing.T, h *hostdir.Host) {
	t.Helper()
	r, err := pivot.JournalIn(h.Root).Load()
	if err != nil || len(r.History) != 1 {
		t.Fatalf("history %+v, %v, want one account", r.History, err)
	}
	a := r.History[0]
	boots := map[string][]string{}
	for _, p := range a.Phases {
		boots[string(p.BootID)] = append(boots[string(p.BootID)], p.Name)
	}
	if a.Phase != pivot.PhaseDone || a.Ended.Before(a.Started) || a.Image.Version != "B.2" || len(boots) != 2 ||
		!slices.Contains(boots["boot-1"], "pull") || !slices.Contains(boots["boot-2"], "prove") {
		t.Errorf("account %+v", a)
	}
}

func expectClosed(t *testing.T, h *hostdir.Host) {
	t.Helper()
	if open, err := machine.OpenFirstBoot(h.Root); err != nil || open != "" || h.Read(firstboot.EncapsulatedPath+".bak") == nil {
		t.Error("the first boot is not closed")
	}
	r, err := pivot.JournalIn(h.Root).Load()
	if err != nil || r.Phase != pivot.PhaseDone {
		t.Errorf("journal %+v, %v, want done", r, err)
	}
	if kept, err := filepath.Glob(h.Path("/sysroot/ostree/repo/refs/heads/pivot/*")); err != nil || len(kept) > 0 {
		t.Errorf("refs are left that keep commits from being pruned: %q, %v", kept, err)
	}
}

func newHost(t *testing.T) *hostdir.Host {
	h := hostdir.New(t)
	h.Write("/etc/local", []byte("a change of this machine\n"))
	ask(t, h)
	return h
}

// TestFirstBoot (P1, P2, P4, P16, P20) is a complete first boot: one reboot, with all work done
// before it, and none when the same is asked for again.
func TestFirstBoot(t *testing.T) {
	h := newHost(t)
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectOld(t, h) // the running system never changes
	if h.Reboots != 1 {
		t.Errorf("%d reboots asked for", h.Reboots)
	}
	if all, err := h.Sysroot().Deployments(); err != nil || all[0].Checksum.String() != h.Commit {
		t.Errorf("when the reboot is asked for, the next boot is %+v, %v", all, err)
	}
	if staged, err := h.Sysroot().Staged(); err != nil || staged != nil {
		t.Errorf("left to shutdown: %+v, %v", staged, err)
	}
	h.Boot()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectNew(t, h)
	expectClosed(t, h)
	expectAccount(t, h)
	if h.Reboots != 1 {
		t.Errorf("%d reboots asked for in all", h.Reboots)
	}

	// The same is asked for again: no call of ostree, no reboot, no request.
	calls, requests := len(h.Ostree.Calls), h.Registry.Requests()
	ask(t, h)
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, h)
	if h.Reboots != 1 || len(h.Ostree.Calls) != calls || h.Registry.Requests() != requests {
		t.Errorf("a converged host: %d reboots, calls %v, %d requests", h.Reboots, h.Ostree.Calls[calls:], h.Registry.Requests()-requests)
	}
}

// TestPowerCuts cuts the power once, before or after each call of ostree takes effect. The
// next boot must be the old system or the complete new one, and the boots after it must
// reach the target, with no more reboots than they need.
func TestPowerCuts(t *testing.T) {
	for call := 1; call <= 2; call++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d after %v", call, after), func(t *testing.T) {
				h := newHost(t)
				h.Ostree.Fail = func(n int, now bool) error {
					if n == call && now == after {
						return errors.New("power cut")
					}
					return nil
				}
				if err := boot(t, h); err == nil {
					t.Fatal("the cut was not noticed")
				}
				expectOld(t, h)
				h.Ostree.Fail = nil
				h.Boot()
				if h.Version() == "A.1" {
					expectOld(t, h)
				} else {
					expectNew(t, h)
				}
				for range 2 {
					if err := boot(t, h); err != nil {
						t.Fatal(err)
					}
					if h.Read(firstboot.EncapsulatedPath) == nil {
						break
					}
					h.Boot()
				}
				expectNew(t, h)
				expectClosed(t, h)
			})
		}
	}
}

// TestCommitThatDoesNotHold (P7, P24): a machine that keeps coming up on its old
// system tries three times, reports each time why, then stops and never reboots again.
func TestCommitThatDoesNotHold(t *testing.T) {
	h := newHost(t)
	h.Write("/boot/ostree/finalize-failure.stamp", []byte("During /etc merge: clash\n"))
	// The new deployment is removed between commit and reboot.
	forget := func() {
		if err := h.Undeploy(0); err != nil {
			t.Fatal(err)
		}
	}
	for attempt := 1; attempt <= pivot.MaxAttempts; attempt++ {
		if err := boot(t, h); err != nil {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
		forget()
		h.Boot()
	}
	// ostree-boot-complete.service has moved the text to the journal meanwhile.
	_ = os.Remove(h.Path("/boot/ostree/finalize-failure.stamp"))
	h.Ostree.Programs = map[string]string{"journalctl": "error: ostree-finalize-staged.service failed on previous boot: During /etc merge: clash\n"}
	err := boot(t, h)
	if r, jerr := pivot.JournalIn(h.Root).Load(); jerr != nil || r.Phase != pivot.PhaseFailed {
		t.Errorf("journal %+v, %v, want failed", r, jerr)
	}
	if again := boot(t, h); again == nil || again.Error() != err.Error() {
		t.Errorf("started once more: %v", again)
	}
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "clash") || fault.HintOf(err) == "" {
		t.Errorf("error %v", err)
	}
	if h.Reboots != pivot.MaxAttempts {
		t.Errorf("%d reboots, want %d", h.Reboots, pivot.MaxAttempts)
	}
	expectOld(t, h)
	if h.Read(firstboot.EncapsulatedPath) == nil {
		t.Error("the file is gone")
	}
	expectAgain(t, h) // as the hint says
}

// foreign pushes an image for another architecture.
func foreign(t *testing.T, h *hostdir.Host) (reference string) {
	t.Helper()
	img, err := oscontainer.Legacy(h.Archive, h.Commit, "B.2", oscontainer.WithWorkDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Architecture = "mips"
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	digest, err := h.Registry.Push(t.Context(), "os/content", "foreign", img)
	if err != nil {
		t.Fatal(err)
	}
	return h.Registry.Host() + "/os/content@" + digest
}

// TestRefusals (P10, P14, P15, P31, P34, P35): errors that can be foreseen are
// found before the host is changed.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*hostdir.Host)
		kind    fault.Kind
		want    string

		afterPull bool
	}{
		{"FIPS mismatch", func(h *hostdir.Host) { h.Write("/proc/sys/crypto/fips_enabled", []byte("1\n")) }, fault.Refused, "FIPS mode on", false},
		{"no boot entry", func(h *hostdir.Host) { _ = os.RemoveAll(h.Path("/boot/loader/entries")) }, fault.Refused, "has no boot entry", false},
		{"not booted from ostree", func(h *hostdir.Host) { _ = os.Remove(h.Path("/run/ostree-booted")) }, fault.Refused, "not booted from an ostree", false},
		{"wrong pull secret", func(h *hostdir.Host) {
			h.Write("/var/lib/kubelet/config.json", []byte(`{"auths":{"`+h.Registry.Host()+`":{"auth":"eDp5"}}}`))
		}, fault.Refused, "unauthorized", false},
		{"image without an ostree commit", func(h *hostdir.Host) { h.Image = h.NoOS(); ask(t, h) }, fault.BadInput, "nor an ostree commit", true},
		{"no space in sysroot", func(h *hostdir.Host) { h.RepoConfig("core.min-free-space-size", "1000000TB") }, fault.CannotWrite, "room for 0 B, but the image needs more than its compressed size, ", false},
		{"no space in boot", func(h *hostdir.Host) {
			h.Space = func(string) (host.Space, error) { return host.Space{Block: 1024, Free: 7, Inodes: 1000}, nil }
		}, fault.CannotWrite, "kernel, initramfs and boot entry need", true},
		{"unified kernel image", func(h *hostdir.Host) {
			h.Write("/sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", []byte("x"))
		}, fault.Refused, "unified kernel image", false},
		{"image for another machine", func(h *hostdir.Host) { h.Image = foreign(t, h); ask(t, h) }, fault.Refused, "it is for linux/mips, but the machine is linux/", false},
		{"policy", func(h *hostdir.Host) {
			h.Write("/etc/containers/policy.json", []byte(`{"default":[{"type":"reject"}]}`))
		}, fault.Refused, "signature policy rejects", false},
		{"name that is not known", func(h *hostdir.Host) {
			h.Image = strings.Replace(h.Image, h.Registry.Host(), "registry.invalid:5000", 1)
			ask(t, h)
		}, fault.Unavailable, "registry.invalid", false},
		{"registry down for good", func(h *hostdir.Host) { _ = h.Registry.SetDown(true) }, fault.Unavailable, "gave up after", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			c.prepare(h)
			err := boot(t, h)
			if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if c.kind != fault.BadInput && fault.HintOf(err) == "" {
				t.Errorf("error %v has no hint", err)
			}
			if h.Reboots != 0 || len(h.Ostree.Calls) != 0 {
				t.Errorf("%d reboots, calls %v", h.Reboots, h.Ostree.Calls)
			}
			// What depends on the imported commit is found after the pull, before a deployment is made.
			if r, err := pivot.JournalIn(h.Root).Load(); err != nil || (r.Phase != pivot.PhaseIdle) != c.afterPull {
				t.Errorf("journal %+v, %v", r, err)
			}
		})
	}
}

func TestRebase(t *testing.T) {
	h := hostdir.New(t)
	rebase := func(image string, change func(*day2.Rebase)) (bool, error) {
		r := day2.Rebase{Machine: newMachine(t, h), Image: image}
		change(&r)
		return r.Run(t.Context(), day2.RunOptions{})
	}
	changed, err := rebase(h.Image, func(r *day2.Rebase) { r.Append, r.Delete = []string{"quiet"}, []string{"keep"} })
	if err != nil || !changed || h.Reboots != 0 {
		t.Fatalf("changed %v, %v, %d reboots", changed, err, h.Reboots)
	}
	h.Boot()
	if h.Version() != "B.2" || !strings.HasSuffix(h.Options(), " quiet") || strings.Contains(h.Options(), "keep=") {
		t.Errorf("version %s with %q", h.Version(), h.Options())
	}
	// Only arguments: the image stays, and with it the origin that names it.
	changed, err = rebase("", func(r *day2.Rebase) { r.Append = []string{"nosmt"} })
	if err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	h.Boot()
	m := newMachine(t, h)
	s, err := m.Status(t.Context())
	if err != nil || s.Phase != pivot.PhaseDone || s.Booted.Image.Reference().String() != h.Image {
		t.Errorf("status %+v booted %+v, %v", s, s.Booted, err)
	}
	changed, err = rebase(h.Image, func(r *day2.Rebase) { r.Append = []string{"nosmt", "quiet"} })
	if err != nil || changed {
		t.Errorf("the same again: changed %v, %v", changed, err)
	}
}
