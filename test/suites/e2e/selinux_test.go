package e2e_test

import (
	"context"
	"path"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// TestSELinux (P52) runs first boots under an enforcing policy, to images with layers that change the policy itself:
// they add types and rules, also for paths of the base. The new system must boot under its own policy, without denials
// for pivot and its programs. No files may remain that restorecon would relabel, except for those that the guest itself
// leaves. In the system, pivot and libostree's programs run under the old system's policy.
func TestSELinux(t *testing.T) {
	t.Parallel()
	runSELinux(t, []selinuxCase{
		{"derived layers, in the initramfs, and a type that A does not know", vm.GuestSpec{SELinux: vm.NewType, Suite: vm.Trixie}, derivedImage,
			enforced(settings.ModeInitramfs, "")},
	})
}

// TestSELinuxWhole has the other cases. It is part of "make nightly".
func TestSELinuxWhole(t *testing.T) {
	runSELinux(t, []selinuxCase{
		{"derived layers, in the system", vm.GuestSpec{SELinux: vm.Enforcing}, derivedImage, enforced(settings.ModeSystem, "")},
		{"plain, in the initramfs, and a type that A does not know", vm.GuestSpec{SELinux: vm.NewType, Suite: vm.Trixie}, plainImage,
			enforced(settings.ModeInitramfs, "")},
		{"initramfs, and a type that A does not know", vm.GuestSpec{SELinux: vm.NewType, Suite: vm.Trixie}, undividedImage, enforced(settings.ModeInitramfs, "")},
		{"initramfs with an old libostree", vm.GuestSpec{SELinux: vm.Enforcing}, undividedImage,
			enforced(settings.ModeInitramfs, "is too old to have the new system's files labelled")},
		{"a type that A may store", vm.GuestSpec{SELinux: vm.NewTypeAllowed}, undividedImage, enforced(settings.ModeSystem, "")},
		{"plain, and a type that A may store", vm.GuestSpec{SELinux: vm.NewTypeAllowed}, plainImage, enforced(settings.ModeSystem, "")},
		{"a type that A may not store", vm.GuestSpec{SELinux: vm.NewType}, undividedImage, refusedType},
		{"a MachineConfig, applied to the running system and with an image", vm.GuestSpec{SELinux: vm.Enforcing}, undividedImage, appliedEnforced},
		{"pivot from Ignition, labelled as by Fedora's policy", vm.GuestSpec{SELinux: vm.Enforcing, Suite: vm.Trixie}, undividedImage,
			func(t *testing.T, l *bootlab.Lab, c selinuxCase) {
				enforced(settings.ModeSystem, "", append(fromIgnition(l), asUsrLocal)...)(t, l, c)
			}},
		{"derived layers, and a type that A may not store", vm.GuestSpec{SELinux: vm.NewType}, derivedImage, refusedType},
	})
}

// asUsrLocal has the programs in /var/usrlocal labelled as those in /usr/local, as Fedora's policy does.
var asUsrLocal = vm.TreeFile{Path: "/etc/selinux/default/contexts/files/file_contexts.subs", Mode: 0o644, Content: []byte("/var/usrlocal /usr/local\n")}

type selinuxCase struct {
	name  string
	spec  vm.GuestSpec
	image imageForm
	run   func(t *testing.T, l *bootlab.Lab, c selinuxCase)
}

// imageForm is the way in which an image contains B.
type imageForm string

const (
	undividedImage imageForm = "undivided"
	// B's own policy is in a derived layer, after the layers with bootlab.DerivedUnit.
	derivedImage imageForm = "derived"
	plainImage   imageForm = "plain"
)

func (f imageForm) layered() bool { return f != undividedImage }

// serve pushes the image to the registry and returns its reference.
func (f imageForm) serve(ctx context.Context, l *bootlab.Lab) (string, error) {
	switch f {
	case derivedImage:
		return l.Derived(ctx)
	case plainImage:
		return l.Plain(ctx, 300)
	}
	return l.Image, nil
}

func runSELinux(t *testing.T, cases []selinuxCase) {
	var boots []bootCase
	for _, c := range cases {
		boots = append(boots, bootCase{c.name, func(t *testing.T) {
			c.spec.PolicyApart = c.image.layered()
			c.run(t, newLab(t, c.spec), c)
		}})
	}
	together(t, boots)
}

// wanted returns the main job's target with the case's image.
func (c selinuxCase) wanted(t *testing.T, l *bootlab.Lab) bootlab.Want {
	t.Helper()
	want := l.Wanted()
	var err error
	if want.Image, err = c.image.serve(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return want
}

// usersFiles make a directory below /etc that a user owns: the commit works on a copy, with its labels.
var usersFiles = []vm.TreeFile{{
	Path: "/etc/tmpfiles.d/user.conf", Mode: 0o644,
	Content: []byte("d /etc/user 0755 1500 1500\nf /etc/user/file 0644 1500 1500 - content\n"),
}}

// enforced returns a case that runs a first boot in a mode. If aside is not "", pivot must step aside
// in the initramfs for that reason, after it has imported the image.
func enforced(mode settings.Mode, aside string, files ...vm.TreeFile) func(t *testing.T, l *bootlab.Lab, c selinuxCase) {
	return func(t *testing.T, l *bootlab.Lab, c selinuxCase) {
		want := c.wanted(t, l)
		m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, want), Mode: mode, Files: slices.Concat(usersFiles, files)})
		first := boot(t, m, vm.BootOptions{})
		expectNothingDenied(t, first)
		expectPivot(t, first)
		if aside == "" {
			expectPivotIn(t, first, mode)
		} else {
			expectAside(t, first, aside)
		}
		second := boot(t, m, vm.BootOptions{})
		expectNothingDenied(t, second)
		expectArrived(t, second, want)
		r := report(t, second)
		if !r.Enforcing {
			t.Error("the new system does not enforce its policy")
		}
		if c.image.layered() && !second.Said(bootlab.DerivedSays) {
			t.Errorf("the console does not say %q", bootlab.DerivedSays)
		}
		expectLabels(t, r)
		expectTypes(t, r, c, want)
	}
}

// refusedType runs a first boot that must fail before the commit and report which label the machine
// cannot store, and the remedy.
func refusedType(t *testing.T, l *bootlab.Lab, c selinuxCase) {
	m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, c.wanted(t, l))})
	only := boot(t, m, vm.BootOptions{})
	expectNothingDenied(t, only) // pivot queries the policy instead of trying
	if only.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want no reboot", only.Exit)
	}
	r := report(t, only)
	if !r.Enforcing || r.Unit.ActiveState != "failed" || r.Unit.ExecMainStatus != 78 || r.Deployments != 1 {
		t.Errorf("enforcing %v, unit %+v, %d deployments; want one, and the unit failed with 78", r.Enforcing, r.Unit, r.Deployments)
	}
	failure := r.Status.Error
	if failure == nil || !strings.Contains(failure.Message, "guest_new_t") || !strings.Contains(failure.Hint, "install_exec_t") {
		t.Errorf("status %+v, want the label and the remedy", failure)
	}
}

// expectNothingDenied checks that SELinux has denied nothing to pivot and its programs, and no access to a file that is
// unlabelled or has B's new type.
func expectNothingDenied(t *testing.T, b *vm.BootResult) {
	t.Helper()
	// Services without their own domain, such as pivot's, run in initrc_t.
	domains := []string{"initrc_t", "setfiles_t", "semanage_t"}
	programs := []string{"pivot", "ostree", "setfiles", "bwrap", "semodule"}
	files := []string{"unlabeled_t", "guest_new_t"}
	for _, d := range b.Denials() {
		if slices.Contains(domains, d.Source) || slices.Contains(programs, d.Command) || slices.Contains(files, d.Target) {
			t.Errorf("denied: %s", d.Text)
		} else {
			t.Logf("denied to others: %s", d.Text)
		}
	}
}

// guestsOwn are files that the guest itself, not pivot, leaves with labels that differ from its
// policy.
var guestsOwn = []string{
	"/etc/network-handed-over", // written in the initramfs by the guest's own unit
	"/usr/lib/modules/",        // the kernel is hard-linked to /boot and has only one label
	"/boot/ostree/",            // the same
}

// expectLabels checks that the reported files and everything below /etc, /usr, /boot and pivot's
// directory have the labels of the policy.
func expectLabels(t *testing.T, r *vm.Report) {
	t.Helper()
	for _, l := range r.Labels {
		if l.Label != l.Policy || l.Label == "" {
			t.Errorf("%s has the label %q, want %q", l.Path, l.Label, l.Policy)
		}
	}
	for _, line := range r.Relabel {
		if !isGuestsOwn(line) {
			t.Errorf("restorecon: %s", line)
		}
	}
}

// isGuestsOwn reports whether a line of restorecon, "Would relabel PATH from LABEL to LABEL", is
// about one of guestsOwn.
func isGuestsOwn(line string) bool {
	fields := strings.Fields(line)
	return len(fields) > 2 && slices.ContainsFunc(guestsOwn, func(own string) bool { return strings.HasPrefix(fields[2], own) })
}

// expectTypes checks that the pinning files and the files of B's commit and of derived layers have
// the types that only B's policy gives them.
func expectTypes(t *testing.T, r *vm.Report, c selinuxCase, want bootlab.Want) {
	t.Helper()
	types := map[string]string{}
	for _, l := range r.Labels {
		types[l.Path] = strings.Split(l.Label+"::", ":")[2]
	}
	for _, f := range want.PinningFiles() {
		for _, name := range []string{f.Path, path.Dir(f.Path)} {
			if types[name] == "" {
				t.Errorf("no label of %s is reported: %+v", name, r.Labels)
			}
		}
	}
	for top, typ := range c.spec.SELinux.Types() {
		if top == bootlab.DerivedDir && !c.image.layered() {
			continue
		}
		if types[top] == "" {
			t.Errorf("no label of %s is reported: %+v", top, r.Labels)
		}
		for name, has := range types {
			if (name == top || strings.HasPrefix(name, top+"/")) && has != typ {
				t.Errorf("%s has the type %q, want %s", name, has, typ)
			}
		}
	}
}
