package initramfs

import (
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
)

// startedMachine returns what is known about a machine with a committed system that can be entered.
func startedMachine(t *testing.T) (Running, committed) {
	t.Helper()
	ref := func(digit string) ostree.DeploymentRef {
		sum, err := ostree.ParseChecksum(strings.Repeat(digit, 64))
		if err != nil {
			t.Fatal(err)
		}
		return ostree.DeploymentRef{Stateroot: "os", Checksum: sum}
	}
	entry := func(file, link string) ostree.BootEntry {
		return ostree.BootEntry{
			File: file, Options: "root=UUID=1 rw $ignition_firstboot ostree=" + link + ` a="b c"`,
			Linux: "/ostree/os-77/vmlinuz", Initrds: []string{"/ostree/os-77/initramfs.img"}, Aboot: "/no/such/file",
		}
	}
	running := Running{
		Deployment: ref("a"), Linked: ref("a"), Entry: entry("ostree-1.conf", "/ostree/boot.1/os/77/0"),
		Cmdline: kargs.Split(`BOOT_IMAGE=(hd0)/x root=UUID=1 rw ignition.firstboot ostree=/ostree/boot.1/os/77/0 a="b c" quiet`),
	}
	next := ostree.Deployment{DeploymentRef: ref("b"), Entry: entry("ostree-2.conf", "/ostree/boot.0/os/77/0")}
	return running, committed{Deployment: next.ID(), Default: next}
}

// TestReasons (P96): a deployment can be entered only if all conditions hold, and each that does not is named.
func TestReasons(t *testing.T) {
	if running, committed := startedMachine(t); len(reasonsOf(running, committed)) != 0 {
		t.Fatalf("reasons %q", reasonsOf(running, committed))
	}
	for _, c := range []struct {
		name, reason string
		change       func(r *Running, c *committed)
	}{
		{"another default", "not what was committed", func(_ *Running, c *committed) { c.Deployment = "os-1.0" }},
		{"unified kernel image", "names no kernel", func(r *Running, c *committed) { r.Entry.Linux, c.Default.Entry.Linux = "", "" }},
		{"another deployment is mounted", "is mounted", func(r *Running, _ *committed) { r.Linked.Serial = 1 }},
		{"edited at the menu", "without rw of its boot entry", func(r *Running, _ *committed) { r.Cmdline = kargs.Split(`root=UUID=1 a="b c"`) }},
		{"a quoted argument", `without a="b c"`, func(r *Running, _ *committed) { r.Cmdline = kargs.Split("root=UUID=1 rw a=b c") }},
		{"GRUB's variable", "without $x", func(r *Running, c *committed) {
			r.Entry.Options, c.Default.Entry.Options = r.Entry.Options+" $x", c.Default.Entry.Options+" $x"
		}},
		{"root= that nobody has added", "without root=UUID=1", func(r *Running, _ *committed) { r.Cmdline = kargs.Split(`rw a="b c"`) }},
		{"another kernel", "another kernel or initramfs", func(_ *Running, c *committed) {
			c.Default.Entry.Options = strings.ReplaceAll(c.Default.Entry.Options, "/77/", "/78/")
		}},
		{"another stateroot", "stateroot", func(_ *Running, c *committed) {
			c.Default.Entry.Options = strings.ReplaceAll(c.Default.Entry.Options, "/os/", "/os2/")
		}},
		{"another kernel's file", "other files", func(_ *Running, c *committed) { c.Default.Entry.Linux += "2" }},
		{"a second initramfs", "other files", func(_ *Running, c *committed) {
			c.Default.Entry.Initrds = append(c.Default.Entry.Initrds, "/ucode.img")
		}},
		{"a device tree", "other files", func(_ *Running, c *committed) { c.Default.Entry.Board = []string{"devicetree"} }},
		{"an argument more", "kernel arguments change", func(_ *Running, c *committed) { c.Default.Entry.Options += " nosmt" }},
		{"another order", "kernel arguments change", func(_ *Running, c *committed) {
			c.Default.Entry.Options = "rw " + strings.Replace(c.Default.Entry.Options, "rw ", "", 1)
		}},
		{"boot counting", "counts boots", func(_ *Running, c *committed) { c.Default.Entry.File = "ostree-2+3.conf" }},
		{"boot counting of the old entry", "counts boots", func(r *Running, _ *committed) { r.Entry.File = "ostree-1+2-1.conf" }},
		{"zipl", "zipl", func(r *Running, _ *committed) { r.BootLoader = "zipl" }},
		{"Android", "Android", func(_ *Running, c *committed) { c.Aboot = true }},
		{"Android already", "Android", func(r *Running, _ *committed) { r.Aboot = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			running, committed := startedMachine(t)
			c.change(&running, &committed)
			if reasons := reasonsOf(running, committed); len(reasons) != 1 || !strings.Contains(reasons[0], c.reason) {
				t.Errorf("reasons %q, want one with %q", reasons, c.reason)
			}
		})
	}
}

// TestEdited: what Fedora CoreOS adds to the boot entry in the boot that runs is no reason, with an encrypted root that
// needs a network, too. Any other argument is one.
func TestEdited(t *testing.T) {
	running, committed := startedMachine(t)
	for _, arg := range []string{"rd.md.uuid=1", "rd.luks.name=1=root", "rd.neednet=1", "rd.luks.options=_netdev", "rootflags=prjquota", "boot=UUID=2"} {
		running.Entry.Options, committed.Default.Entry.Options = running.Entry.Options+" "+arg, committed.Default.Entry.Options+" "+arg
	}
	running.Edited, running.Cmdline = true, kargs.Split(`ostree=/ostree/boot.1/os/77/0 a="b c"`)
	if reasons := reasonsOf(running, committed); len(reasons) != 0 {
		t.Errorf("reasons %q", reasons)
	}
	whole := running.Entry.Options
	for _, arg := range []string{"rd.multipath=default", "rd.neednet=0", "rd.luks.options=discard", "rw=1"} {
		running.Entry.Options, committed.Default.Entry.Options = whole+" "+arg, whole+" "+arg
		committed.Default.Entry.Options = strings.Replace(committed.Default.Entry.Options, "boot.1", "boot.0", 1)
		if reasons := reasonsOf(running, committed); len(reasons) != 1 || !strings.Contains(reasons[0], "without "+arg) {
			t.Errorf("%s: reasons %q", arg, reasons)
		}
	}
	running.Edited = false
	if reasons := running.reasons(); len(reasons) != 1 {
		t.Errorf("nobody has edited: reasons %q", reasons)
	}
}
