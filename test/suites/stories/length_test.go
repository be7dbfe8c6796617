package stories_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// loaders are the ways in which a machine was started: what its kernel was given before the arguments of the boot entry,
// and what the next one will be given.
func loaders() map[string]struct {
	before string
	make   func(h *hostdir.Host)
	next   func(linux string) string
} {
	const image, initrd = "BOOT_IMAGE=(hd0,gpt3)/boot/ostree/os-1/vmlinuz-6.1 ", `initrd=\ostree\os-1\initramfs `
	grub := func(h *hostdir.Host) { h.Write("/boot/grub2/grub.cfg", nil) }
	type loader = struct {
		before string
		make   func(h *hostdir.Host)
		next   func(linux string) string
	}
	return map[string]loader{
		"GRUB":                     {image, grub, func(string) string { return image }},
		"GRUB somewhere":           {image, func(*hostdir.Host) {}, func(string) string { return image }},
		"systemd-boot":             {initrd, func(*hostdir.Host) {}, func(string) string { return initrd }},
		"systemd-boot beside GRUB": {initrd, grub, func(string) string { return initrd }},
		"zipl":                     {"", func(*hostdir.Host) {}, func(string) string { return "" }},
		"kexec, and GRUB":          {"", grub, func(linux string) string { return "BOOT_IMAGE=(hd0,gpt3)" + linux + " " }},
		"petitboot": {"", func(h *hostdir.Host) {
			grub(h)
			h.Write("/sys/firmware/opal/x", nil)
		}, func(string) string { return "" }},
	}
}

// room starts a machine by a boot loader, and returns how long an argument may be that is added to its boot entry.
func room(t *testing.T, h *hostdir.Host, before string, next func(string) string) int {
	t.Helper()
	options := strings.Replace(h.Options(), "$ignition_firstboot", "ignition.firstboot", 1)
	h.Write("/proc/cmdline", []byte(before+options+"\n"))
	all, err := h.Sysroot().Deployments()
	must(t, err)
	given := next(all[0].Entry.Linux) + strings.Replace(h.Options(), "$ignition_firstboot ", "", 1) + " "
	return kargs.MaxLength - len(given)
}

// TestLengthWithTheLoader: kernel arguments fit if they do together with what the boot loader puts before them,
// also on a machine that was entered past it.
func TestLengthWithTheLoader(t *testing.T) {
	for name, c := range loaders() {
		t.Run(name, func(t *testing.T) {
			h := hostdir.New(t)
			c.make(h)
			n := room(t, h, c.before, c.next)
			for _, over := range []int{1, 0} {
				r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"x=" + strings.Repeat("y", n+over-len("x="))}}
				_, perr := r.Plan(t.Context(), day2.RunOptions{})
				_, err := r.Run(t.Context(), day2.RunOptions{})
				for _, err := range []error{perr, err} {
					if over == 0 {
						must(t, err)
					} else if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "2048 bytes") ||
						strings.Contains(err.Error(), "what the boot loader puts before it ("+strings.TrimSpace(c.next("/"))[:min(7, len(c.next("/")))]) != (c.next("/") != "") {
						t.Errorf("%d bytes: %v", n+over, err)
					}
				}
				if (len(h.Ostree.Calls) > 0) != (over == 0) {
					t.Errorf("%d bytes: calls %v", n+over, h.Ostree.Calls)
				}
			}
		})
	}
}

// TestLengthOfImageKargs: so do arguments that an image brings, which are known only once it is pulled.
func TestLengthOfImageKargs(t *testing.T) {
	for over, fits := range map[int]bool{0: true, 1: false} {
		h := newHost(t)
		c := loaders()["GRUB"]
		asked := " nosmt hugepagesz=1G hugepages=4 " + `acpi_osi="!Windows 2020"`
		n := room(t, h, c.before, c.next) - len(asked)
		serve(t, h, h.NativeImage(withImageKargs(fmt.Sprintf("kargs = [%q]", "x="+strings.Repeat("y", n+over-len("x="))))))
		notes, err := bootWith(t, h, "ostree", applying)
		if (err == nil) != fits || !fits && (fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "BOOT_IMAGE=") || len(h.Ostree.Calls) > 0) {
			t.Errorf("%d over: %v, calls %v, notes %s", over, err, h.Ostree.Calls, notes)
		}
	}
}

// TestLengthAlreadyTooLong: a line that is too long already, by its boot loader's additions, can be shortened, and its
// machine can be moved to another image. Only more is refused, with what to do.
func TestLengthAlreadyTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *hostdir.Host, r *day2.Rebase)
		fits   bool
	}{
		"another image":     {func(h *hostdir.Host, r *day2.Rebase) { r.Image = h.Image }, true},
		"shorter":           {func(_ *hostdir.Host, r *day2.Rebase) { r.Delete = []string{"rw"} }, true},
		"shorter, and more": {func(_ *hostdir.Host, r *day2.Rebase) { r.Delete, r.Append = []string{"rw"}, []string{"quiet"} }, false},
		"more":              {func(_ *hostdir.Host, r *day2.Rebase) { r.Append = []string{"quiet"} }, false},
		"short enough":      {func(_ *hostdir.Host, r *day2.Rebase) { r.Delete, r.Append = []string{"long"}, []string{"quiet"} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTried(t)
			l := loaders()["GRUB"]
			n := room(t, h.Host, l.before, l.next)
			h.addOption("long=" + strings.Repeat("y", n+10-len("long=")))
			room(t, h.Host, l.before, l.next)
			r := day2.Rebase{Machine: h.newMachine()}
			c.change(h.Host, &r)
			_, err := r.Run(t.Context(), day2.RunOptions{})
			if (err == nil) != c.fits || err != nil && (fault.KindOf(err) != fault.BadInput || !strings.Contains(fault.HintOf(err), "--delete-karg")) {
				t.Errorf("%v, hint %s", err, fault.HintOf(err))
			}
			if !c.fits {
				h.expect("A", pivot.PhaseIdle, false)
			}
		})
	}
}
