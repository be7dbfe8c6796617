package pivot_test

import (
	"slices"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// TestClasses (D106): each difference has the class of what differs, its name, and how it differs.
func TestClasses(t *testing.T) {
	state := pivot.State{
		Booted:  pivot.Deployment{Commit: "a", Image: pivot.Image{Reference: "r@sha256:a", Digest: "sha256:a"}, Options: kargs.Line{"root=x", "old=1"}},
		Cmdline: kargs.Line{"root=x", "old=1"},
	}
	target := pivot.Target{
		Image: pivot.Image{Reference: "r@sha256:b", Digest: "sha256:b", Commit: "b"},
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
