package stories_test

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/bootloader"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/rehearse"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/verdict"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// TestMain makes the tests' program one that rehearses the start of a system, and installs its boot loader.
func TestMain(m *testing.M) {
	for _, inside := range []func([]string, io.Writer, io.Writer) (int, bool){rehearse.Inside, bootloader.Inside} {
		if status, is := inside(os.Args, os.Stdout, os.Stderr); is {
			os.Exit(status)
		}
	}
	os.Exit(m.Run())
}

// TestRehearsal (P97, P98): an image with programs that do not start here is refused before anything is made from it,
// by a first boot in either place and by hand. An accepted one is not, and journal and status keep that; nor is one
// with programs that start.
func TestRehearsal(t *testing.T) {
	actor := filepath.Join(t.TempDir(), "actor")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", actor, "machine-pivot/internal/rehearse/testdata/actor").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the actor: %v\n%s", err, out)
	}
	early := func(m *machine.Machine) {
		m.Place = firstboot.Initramfs{Early: &place{Initramfs: initramfs.New(m.Host.Root)}, Disk: m.Host.Disk}
		must(t, m.UseEngine("auto"))
	}
	for way, prepare := range map[string]func(*machine.Machine){"system": func(*machine.Machine) {}, "initramfs": early, "by hand": nil} {
		for says, wanted := range map[string]string{
			`{"Say": "Fatal glibc error: CPU does not support x86-64-v3", "Status": 127}`: "cannot start the image on this machine: its /usr/bin/true needs another processor (Fatal glibc error: CPU does not support x86-64-v3)",
			`{}`: "",
		} {
			t.Run(fmt.Sprintf("%s, starts %v", way, wanted == ""), func(t *testing.T) {
				const accept = "--accept processor; on a first boot the kernel argument pivot.accept=processor"
				h := newHost(t)
				h.ProgramIntoNext("usr/bin/true", actor)
				h.PutIntoNext(map[string]string{"usr/etc/act/true": says})
				h.Image = h.Push(h.NativeImage())
				ask(t, h)
				notes, err := rehearsed(t, h, prepare)
				if wanted == "" {
					if err != nil || !strings.Contains(notes, "it has no /usr/lib/systemd/systemd") {
						t.Errorf("error %v, notes:\n%s", err, notes)
					}
					return
				}
				if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), wanted) || !strings.Contains(fault.HintOf(err), accept) || h.Reboots != 0 || len(h.Ostree.Calls) != 0 {
					t.Errorf("error %v, hint %q, %d reboots, calls %v", err, fault.HintOf(err), h.Reboots, h.Ostree.Calls)
				}
				if prepare == nil { // with a flag; a first boot has a setting
					_, err = rehearsed(t, h, nil, verdict.Processor)
				} else {
					h.Write(settings.Path, []byte("accept=drivers,processor\n"))
					_, err = rehearsed(t, h, prepare)
				}
				status, failed := newMachine(t, h).Status(t.Context())
				if err != nil || failed != nil || !strings.Contains(strings.Join(status.Notes, "\n"), "this image was accepted (processor) although its /usr/bin/true needs another processor") {
					t.Errorf("accepted: errors %v, %v, notes of the status %q", err, failed, status.Notes)
				}
				journal, err := pivot.JournalIn(h.Root).Load()
				if err != nil || len(journal.Target.Accepted) != 1 || journal.Target.Accepted[0].Name != verdict.Processor {
					t.Errorf("accepted: error %v, the journal has %v", err, journal.Target.Accepted)
				}
			})
		}
	}
}

// rehearsed runs a first boot on a machine that is prepared for it, or, with nil, a rebase by hand. It returns the notes.
func rehearsed(t *testing.T, h *hostdir.Host, prepare func(*machine.Machine), accept ...verdict.Name) (notes string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reboot := h.Reboot
	h.Reboot = func(ctx context.Context) error { cancel(); return reboot(ctx) }
	m := newMachine(t, h)
	m.Self, m.Accept = "/proc/self/exe", accept
	m.Progress.Emit = func(e pivot.Event) { notes += e.Message + "\n" }
	if prepare == nil {
		must(t, os.RemoveAll(h.Path(firstboot.EncapsulatedPath)))
		r := day2.Rebase{Machine: m, Image: h.Image}
		_, err = r.Run(ctx, day2.RunOptions{})
		return notes, err
	}
	prepare(m)
	b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
	return notes, b.Run(ctx)
}

// TestPassedOnce (P103): a change that has passed is not asked again in this boot, unless something is another.
func TestPassedOnce(t *testing.T) {
	actor := filepath.Join(t.TempDir(), "actor")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", actor, "machine-pivot/internal/rehearse/testdata/actor").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the actor: %v\n%s", err, out)
	}
	h := newHost(t)
	for _, name := range []string{"usr/bin/true", "usr/lib/systemd/systemd"} {
		h.ProgramIntoNext(name, actor)
	}
	h.PutIntoNext(map[string]string{"usr/etc/act/true": `{}`, "usr/etc/act/systemd": `{"Say":"systemd 255 (255)"}`})
	h.Image = h.Push(h.NativeImage())
	record := h.Path("/run/pivot/passed.json")
	for i, change := range []func(){func() {}, func() {}, func() { must(t, os.WriteFile(record, []byte("{"), 0o644)) }} {
		change()
		before, _ := os.Stat(record)
		m := newMachine(t, h)
		m.Self = "/proc/self/exe"
		r := day2.Rebase{Machine: m, Image: h.Image}
		if _, err := r.Download(t.Context()); err != nil {
			t.Fatal(err)
		}
		after, err := os.Stat(record)
		must(t, err)
		if again := before == nil || !os.SameFile(before, after); again != (i != 1) {
			t.Errorf("run %d: judged %v", i, again)
		}
	}
}

// TestOwnSettings: a new system is judged with the files of /etc that it will have: the machine's, and those of the MachineConfig
// in their place.
func TestOwnSettings(t *testing.T) {
	runtime := func(name string) string { return "[crio.runtime]\ndefault_runtime = \"" + name + "\"\n" }
	const own, warned = "/etc/crio/crio.conf.d/60-own", "CRI-O's default_runtime on this machine is runc"
	for _, c := range []struct {
		name, has, brings string
		warned            bool
	}{
		{"the machine's", runtime("runc"), "", true},
		{"the MachineConfig's", runtime("crun"), runtime("runc"), true},
		{"corrected by the MachineConfig", runtime("runc"), runtime("crun"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.PutIntoNext(map[string]string{"usr/bin/crun": ""})
			h.Image = h.Push(h.NativeImage())
			h.Write(own, []byte(c.has))
			files := ""
			if c.brings != "" {
				files = fmt.Sprintf(`{"path":%q,"overwrite":true,"mode":420,"contents":{"source":"data:,%s"}}`, own, url.PathEscape(c.brings))
				h.Write(own, []byte(c.brings)) // as Ignition has written it
			}
			h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil, `{"spec":{"osImageURL":%q,"config":{"ignition":{"version":"3.2.0"},"storage":{"files":[%s]}}}}`, h.Image, files))
			notes, err := rehearsed(t, h, func(*machine.Machine) {})
			if err != nil || strings.Contains(notes, warned) != c.warned {
				t.Errorf("error %v, notes:\n%s", err, notes)
			}
		})
	}
}
