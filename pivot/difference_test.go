package pivot_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// TestClasses: each difference has the class of what differs, its name, and how it differs.
func TestClasses(t *testing.T) {
	state := pivot.State{
		Booted:  pivot.Deployment{Commit: "a", Image: image("r@sha256:a"), Options: kargs.Line{"root=x", "old=1"}},
		Cmdline: kargs.Line{"root=x", "old=1"},
	}
	target := pivot.Target{
		Image: pivot.Image{Name: imageref.FromOrigin("r@sha256:b"), Digest: "sha256:b", Commit: "b"},
		Kargs: kargs.Change{Old: kargs.Line{"old=1"}, New: kargs.Line{"new=1"}},
	}
	got := pivot.Compare(state, target)
	got = append(got,
		pivot.EntryChange{Path: "/etc/a", Action: pivot.ChangeCreate}.Difference(),
		pivot.EntryChange{Path: "/etc/b", Kind: hostfiles.KindDirectory, Action: pivot.ChangeReplace}.Difference(),
		pivot.EntryChange{Path: "/etc/c", Kind: hostfiles.KindDefault, Action: pivot.ChangeRemove}.Difference(),
		pivot.EntryChange{Path: "/etc/d", Kind: hostfiles.KindDefault, Action: pivot.ChangeRestore}.Difference(),
		pivot.EntryChange{Path: "/etc/systemd/system/multi-user.target.wants/a.service", Kind: hostfiles.KindLink, Action: pivot.ChangeCreate}.Difference(),
		pivot.EntryChange{Path: "/etc/systemd/system/b.service.d/x.conf", Action: pivot.ChangeReplace}.Difference(),
		pivot.EntryChange{Path: hostfiles.PasswordPath("core"), Kind: hostfiles.KindPassword, Action: pivot.ChangeReplace}.Difference(),
		pivot.PackageChange{Name: "p", Action: pivot.PackageInstall}.Difference(),
		pivot.PackageChange{Name: "q", Action: pivot.PackageUninstall}.Difference(),
	)
	want := []pivot.Difference{
		{Class: pivot.ClassImage, Name: "r@sha256:b", Wrong: pivot.WrongDiffers},
		{Class: pivot.ClassImage, Name: "b", Wrong: pivot.WrongDiffers},
		{Class: pivot.ClassArguments, Name: "new=1", Wrong: pivot.WrongMissing},
		{Class: pivot.ClassArguments, Name: "old=1", Wrong: pivot.WrongExtra},
		{Class: pivot.ClassFile, Name: "/etc/a", Path: "/etc/a", Wrong: pivot.WrongMissing},
		{Class: pivot.ClassFile, Name: "/etc/b", Path: "/etc/b", Wrong: pivot.WrongDiffers},
		{Class: pivot.ClassFile, Name: "/etc/c", Path: "/etc/c", Wrong: pivot.WrongExtra},
		{Class: pivot.ClassFile, Name: "/etc/d", Path: "/etc/d", Wrong: pivot.WrongDiffers},
		{Class: pivot.ClassUnit, Name: "a.service", Path: "/etc/systemd/system/multi-user.target.wants/a.service", Wrong: pivot.WrongMissing},
		{Class: pivot.ClassUnit, Name: "b.service", Path: "/etc/systemd/system/b.service.d/x.conf", Wrong: pivot.WrongDiffers},
		{Class: pivot.ClassPassword, Name: "core", Path: "/etc/shadow", Wrong: pivot.WrongDiffers},
		{Class: pivot.ClassPackage, Name: "p", Wrong: pivot.WrongMissing},
		{Class: pivot.ClassPackage, Name: "q", Wrong: pivot.WrongExtra},
	}
	for i := range got {
		if got[i].Message == "" {
			t.Errorf("no message for %+v", got[i])
		}
		got[i].Message = ""
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}

// TestKernelArguments: the running kernel's arguments are compared with a target in both directions, by what the
// target names. What boot loader, firmware and Ignition's first boot add is no difference.
func TestKernelArguments(t *testing.T) {
	const entry = "root=UUID=1 rw keep=1 ostree=/x"
	for _, c := range []struct {
		name, running string
		change        kargs.Change
		want          string // "" for none
	}{
		{"what a boot loader adds", "BOOT_IMAGE=/vmlinuz initrd=/i " + entry + " quiet", kargs.Change{New: kargs.Line{"keep=1"}, Old: kargs.Line{"old=1"}}, ""},
		{"deleted, and there", entry + " debug", kargs.Change{Delete: kargs.Line{"debug"}}, "debug extra"},
		{"deleted by its value", entry + " a=1 a=2", kargs.Change{Delete: kargs.Line{"a=1"}}, "a=1 extra"},
		{"deleted, with two values there", entry + " a=1 a=2", kargs.Change{Delete: kargs.Line{"a"}, New: kargs.Line{"keep=1"}}, "a=2 extra, a=1 extra"},
		{"wanted by the MachineConfig before", "old=1 " + entry, kargs.Change{Old: kargs.Line{"old=1"}}, "old=1 extra"},
		{"brought by the image before", entry + " image=1", kargs.Change{Image: &kargs.ImageChange{Before: kargs.Line{"image=1"}}}, "image=1 extra"},
		{"on a first boot of Ignition", entry + " ignition.firstboot rd.neednet=1", kargs.Change{Delete: kargs.Line{"rd.neednet=1"}}, ""},
		{"what the boot loader writes", "BOOT_IMAGE=/vmlinuz initrd=/i " + entry, kargs.Change{Delete: kargs.Line{"BOOT_IMAGE", "initrd"}}, ""},
		{"what the machine needs", entry + " rootflags=x", kargs.Change{Delete: kargs.Line{"rootflags"}}, ""},
		{"deleted and wanted", entry, kargs.Change{Delete: kargs.Line{"keep=1"}, New: kargs.Line{"keep=1"}}, ""},
		{"missing", "root=UUID=1 rw ostree=/x", kargs.Change{New: kargs.Line{"keep=1"}}, "keep=1 missing"},
		{"overridden", entry + " keep=2", kargs.Change{New: kargs.Line{"keep=1"}}, "keep=1 missing"},
		{"missing, with one too many", "root=UUID=1 debug", kargs.Change{New: kargs.Line{"keep=1"}, Delete: kargs.Line{"debug"}}, "keep=1 missing, debug extra"},
		{"after --", entry + " -- debug", kargs.Change{Delete: kargs.Line{"debug"}}, ""},
	} {
		state := pivot.State{Booted: pivot.Deployment{Options: kargs.Split(entry)}, Cmdline: kargs.Split(c.running)}
		var got []string
		for _, d := range pivot.Compare(state, pivot.Target{Kargs: c.change}) {
			got = append(got, d.Name+" "+string(d.Wrong))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}
