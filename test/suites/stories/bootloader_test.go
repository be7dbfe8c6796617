package stories_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/verdict"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/efi"
	"machine-pivot/test/worlds/hostdir"
)

// bootLoaders are programs for machines with Secure Boot, and machines that have them.
type bootLoaders struct {
	t                                *testing.T
	actor                            string
	vendor, next, firmware, stranger *efi.Key
	kernel                           []byte
}

func newBootLoaders(t *testing.T) bootLoaders {
	key := func(name string) *efi.Key {
		k, err := efi.NewKey(name, nil, nil)
		must(t, err)
		return k
	}
	b := bootLoaders{t: t, actor: filepath.Join(t.TempDir(), "actor"), vendor: key("Vendor CA 5"), next: key("Vendor CA 8"), firmware: key("UEFI CA 2011"), stranger: key("Stranger")}
	b.kernel = efi.Program(efi.Section{Name: ".text", Content: "kernel"})
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.actor, "machine-pivot/internal/bootloader/testdata/actor").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the actor: %v\n%s", err, out)
	}
	return b
}

func (b bootLoaders) sign(program []byte, by *efi.Key) string {
	b.t.Helper()
	signed, err := by.Sign(program)
	must(b.t, err)
	return string(signed)
}

const (
	kernelPath = "usr/lib/modules/6.1/vmlinuz"
	shimPath   = "usr/lib/efi/shim/15.8-3/EFI/redhat/shimx64.efi"
	grubPath   = "usr/lib/efi/grub2/2.12-1/EFI/redhat/grubx64.efi"
	removable  = "usr/lib/efi/shim/15.8-3/EFI/BOOT/BOOTX64.EFI"
)

// image returns the files of an image of which only its own shim starts the kernel.
func (b bootLoaders) image(more map[string]string) map[string]string {
	shim := efi.Program(efi.Section{Name: ".vendor_cert", Content: string(efi.Vendor(b.next))})
	files := map[string]string{
		kernelPath: b.sign(b.kernel, b.next), shimPath: b.sign(shim, b.firmware), removable: b.sign(shim, b.firmware),
		grubPath: b.sign(efi.Program(efi.Section{Name: ".text", Content: "grub"}), b.next),
	}
	for name, content := range more {
		if files[name] = content; content == "" {
			delete(files, name)
		}
	}
	return files
}

// variables are those of a machine with Secure Boot, of which the firmware trusts more keys than that of shims.
func (b bootLoaders) variables(more ...*efi.Key) map[string][]byte {
	return map[string][]byte{efi.SecureBoot: {1}, efi.DB: efi.Certs(append(more, b.firmware)...), efi.MokList: efi.Certs(b.vendor)}
}

// host returns a machine on two disks. Its next system has the image's files and the actor's programs.
func (b bootLoaders) host(t *testing.T, image map[string]string, variables map[string][]byte) *hostdir.Host {
	h := newHost(t)
	must(t, efi.Variables(h.Root, variables))
	runKernel(t, h, b.sign(b.kernel, b.vendor))
	for _, disk := range []string{"disk1", "disk2"} {
		for name, content := range map[string]string{"redhat/shimx64.efi": "old shim", "redhat/grubx64.efi": "old grub", "redhat/grub.cfg": "config", "BOOT/bootx64.efi": "old shim"} {
			h.Write("/boot/"+disk+"/esp/EFI/"+name, []byte(content))
		}
	}
	h.Write("/boot/grub2/grub.cfg", nil)
	h.ProgramIntoNext("usr/libexec/actor", b.actor)
	links := map[string]string{}
	for _, name := range []string{"findmnt", "lsblk", "mount", "bootupctl"} {
		if image["without"] != name {
			links["usr/bin/"+name] = "../libexec/actor"
		}
	}
	h.LinkIntoNext(links)
	h.PutIntoNext(image)
	for _, other := range []string{"grub-cc", "systemd-boot"} { // which are for machines that start by them
		h.PutIntoNext(map[string]string{"usr/lib/efi/" + other + "/1/EFI/redhat/grubx64.efi": b.sign(b.kernel, b.stranger)})
	}
	h.Image = h.Push(h.NativeImage())
	ask(t, h)
	return h
}

// installed returns on how many partitions an image's boot loader is; -1: on some in part.
func installed(t *testing.T, h *hostdir.Host, image map[string]string) (n int) {
	t.Helper()
	for _, disk := range []string{"disk1", "disk2"} {
		equal, all := 0, 0
		for name, content := range image {
			if _, below, is := strings.Cut(name, "/EFI/"); is {
				all++
				found, _ := os.ReadFile(h.Path("/boot/" + disk + "/esp/EFI/" + below))
				if string(found) == content {
					equal++
				}
			}
		}
		if equal == all && all > 0 {
			n++
		} else if equal > 0 {
			return -1
		}
		if string(h.Read("/boot/"+disk+"/esp/EFI/redhat/grub.cfg")) != "config" {
			t.Errorf("the configuration on %s is another", disk)
		}
	}
	return n
}

// pending reports whether the next boot is another system.
func pending(t *testing.T, h *hostdir.Host) bool {
	t.Helper()
	state, err := newMachine(t, h).Host.Observe(t.Context(), pivot.Target{})
	must(t, err)
	return state.Pending()
}

// TestBootLoader (P104): where only the image's own boot loader starts its kernel, it is installed on all disks before the commit, and read
// back. Otherwise nothing is changed, and the refusal says why.
func TestBootLoader(t *testing.T) {
	b := newBootLoaders(t)
	const own, refused = "the image's own boot loader is installed before the commit", "its kernel would not be started"
	off := map[string][]byte{efi.SecureBoot: {0}}
	zboot := map[string]string{kernelPath: "MZ\x00\x00zimg"}
	signed := map[string]string{kernelPath: b.sign(b.kernel, b.vendor)}
	for _, c := range []struct {
		name      string
		image     map[string]string // besides the usual; "": without it
		variables map[string][]byte // nil: the firmware trusts the running kernel's signer, too
		choice    settings.BootLoader
		accept    []verdict.Name
		before    bool // it is installed already
		mounted   bool // an ESP is, to be written
		installed int
		err, hint string
		note      string // "": nothing about a boot loader
	}{
		{name: "needed", installed: 2, note: "the installed shim would not start its kernel: it is signed by \"Vendor CA 8\", issued by \"Vendor CA 8\", and neither is trusted; " + own},
		{name: "needed, and there already", before: true, installed: 2},
		{name: "needed, and the machine has mounted one", mounted: true, installed: 2, note: own},
		{name: "never", choice: settings.BootLoaderNever, err: refused, hint: "which starts this kernel: boot-loader=needed"},
		{name: "no way back", variables: b.variables(), err: "there is no way back", hint: "--accept way-back"},
		{name: "no way back, accepted", variables: b.variables(), accept: []verdict.Name{verdict.WayBack}, installed: 2, note: "warning: accepted (way-back): its kernel needs the image's own boot loader"},
		{name: "bootupctl takes the installed one for newer", image: map[string]string{"usr/etc/act/bootupctl": "old"},
			err: "cannot install the image's boot loader: after bootupctl update it is not that of the image: EFI/boot/bootx64.efi on /boot/disk1/esp, EFI/redhat/grubx64.efi on /boot/disk1/esp", hint: "the machine starts as before"},
		{name: "bootupctl fails half-way", image: map[string]string{"usr/etc/act/bootupctl": "dies"}, installed: 1,
			err: "on /boot/disk2/esp (/usr/bin/bootupctl update: exit status 1: error: the second disk does not answer)", hint: "the machine starts as before"},
		{name: "of another vendor", image: map[string]string{shimPath: "", grubPath: "", removable: "",
			"usr/lib/efi/s/1/EFI/fedora/shimx64.efi": b.image(nil)[shimPath], "usr/lib/efi/g/1/EFI/fedora/grubx64.efi": b.image(nil)[grubPath]},
			err: refused, hint: "no EFI system partition of the disks below /boot has a boot loader where the image's belongs (EFI/fedora/grubx64.efi)"},
		{name: "no bootupctl", image: map[string]string{"without": "bootupctl"}, err: refused, hint: "The image's own boot loader is no help: the image has no /usr/bin/bootupctl"},
		{name: "no lsblk", image: map[string]string{"without": "lsblk"}, err: refused, hint: "The image's own boot loader is no help: cannot find the disks below /boot"},
		{name: "without a GRUB", image: map[string]string{grubPath: ""}, err: refused, hint: "(mokutil --import FILE); or, if you know better"},
		{name: "with a GRUB of somebody else", image: map[string]string{grubPath: b.sign(b.kernel, b.stranger)}, err: refused, hint: `its shim would not start its GRUB (it is signed by "Stranger"`},
		{name: "with another kernel", image: map[string]string{kernelPath: b.sign(b.kernel, b.stranger)}, err: refused, hint: `its shim would not start this kernel, either (it is signed by "Stranger"`},
		{name: "with a shim that the firmware does not start", image: map[string]string{shimPath: b.sign(b.kernel, b.stranger)}, err: refused, hint: "unless it has newer keys (fwupdmgr update)"},
		{name: "a signed kernel needs none", image: signed},
		{name: "always", image: signed, choice: settings.BootLoaderAlways, installed: 2, note: "boot-loader=always; " + own},
		{name: "always, without Secure Boot", image: signed, variables: off, choice: settings.BootLoaderAlways, installed: 2, note: "boot-loader=always; " + own},
		{name: "always, without EFI", image: signed, variables: map[string][]byte{}, choice: settings.BootLoaderAlways},
		{name: "always, without a way back", image: map[string]string{kernelPath: b.sign(b.kernel, b.next)},
			variables: map[string][]byte{efi.SecureBoot: {1}, efi.DB: efi.Certs(b.firmware), efi.MokList: efi.Certs(b.vendor, b.next)}, choice: settings.BootLoaderAlways,
			note: "its boot loader is not installed: it would not start the running system's kernel any more"},
		{name: "always, and there is none", image: map[string]string{kernelPath: signed[kernelPath], shimPath: "", grubPath: "", removable: ""}, choice: settings.BootLoaderAlways},
		{name: "a kernel of another form", image: zboot, variables: off, installed: 2, note: "the running one is not: GRUB before 2.06-88 of Fedora 37 cannot load it; " + own},
		{name: "a kernel of another form, never", image: zboot, variables: off, choice: settings.BootLoaderNever, note: "pivot does not install the image's boot loader: the setting boot-loader=never"},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := b.image(c.image)
			if c.variables == nil {
				c.variables = b.variables(b.vendor)
			}
			h := b.host(t, image, c.variables)
			if len(c.variables) == 0 {
				must(t, os.RemoveAll(h.Path("/sys/firmware/efi")))
			}
			if c.choice != "" {
				h.Write(settings.Path, []byte("boot-loader="+string(c.choice)+"\n"))
			}
			for name, content := range image {
				if _, below, is := strings.Cut(name, "/EFI/"); is && c.before {
					for _, disk := range []string{"disk1", "disk2"} {
						must(t, os.RemoveAll(h.Path("/boot/"+disk+"/esp/EFI/BOOT/bootx64.efi")))
						h.Write("/boot/"+disk+"/esp/EFI/"+below, []byte(content))
					}
				}
			}
			if c.mounted {
				h.Write("/boot/mounted", nil)
			}
			notes, err := rehearsed(t, h, nil, c.accept...)
			if n := installed(t, h, image); n != c.installed {
				t.Errorf("it is on %d partitions", n)
			}
			if c.err != "" {
				if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.err) || !strings.Contains(fault.HintOf(err), c.hint) || pending(t, h) {
					t.Errorf("error %v, hint %q, next boot is new: %v", err, fault.HintOf(err), pending(t, h))
				}
				return
			}
			if err != nil || !pending(t, h) || !strings.Contains(notes, c.note) || c.note == "" && strings.Contains(notes, "boot loader") {
				t.Errorf("error %v, next boot is new: %v, notes:\n%s", err, pending(t, h), notes)
			}
			if said := strings.Contains(notes, "the image's boot loader is installed on /boot/disk1/esp, /boot/disk2/esp"); said != (c.installed == 2 && !c.before) {
				t.Errorf("notes:\n%s", notes)
			}
		})
	}
}

// TestBootLoaderOfFirstBoot (P104): a first boot installs it, too, in either place; a download does not. After an update that ended half-way,
// the next run ends it.
func TestBootLoaderOfFirstBoot(t *testing.T) {
	b := newBootLoaders(t)
	const label, labelled = "system_u:object_r:boot_t:s0", "security.selinux"
	for way, prepare := range map[string]func(*machine.Machine){"system": func(*machine.Machine) {}, "initramfs": func(m *machine.Machine) {
		m.Place = firstboot.Initramfs{Early: &place{Initramfs: initramfs.New(m.Host.Root)}, Disk: m.Host.Disk}
		must(t, m.UseEngine("auto"))
	}} {
		t.Run(way, func(t *testing.T) {
			image := b.image(map[string]string{"usr/etc/act/bootupctl": "dies"})
			h := b.host(t, image, b.variables(b.vendor))
			withLabels := unix.Setxattr(h.Path("/boot"), labelled, []byte(label), 0) == nil // not each file system of tests has them
			m := newMachine(t, h)
			m.Self = "/proc/self/exe"
			download := day2.Rebase{Machine: m, Image: h.Image}
			if _, err := download.Download(t.Context()); err != nil {
				t.Fatal(err)
			}
			for run, wanted := range []int{0, 1, 2} {
				if n := installed(t, h, image); n != wanted {
					t.Fatalf("before run %d it is on %d partitions", run, n)
				}
				_, err := rehearsed(t, h, prepare)
				if ends := wanted > 0; ends != (err == nil) {
					t.Fatalf("run %d: error %v", run, err)
				}
				if wanted == 1 {
					break
				}
			}
			if n := installed(t, h, image); n != 2 {
				t.Errorf("it is on %d partitions", n)
			}
			found := make([]byte, 64)
			if n, err := unix.Lgetxattr(h.Path("/boot/bootupd-state.json"), labelled, found); withLabels && string(found[:max(n, 0)]) != label {
				t.Errorf("the label is %q, error %v", found, err)
			}
		})
	}
}
