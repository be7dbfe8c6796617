package stories_test

import (
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/settings"
	"machine-pivot/kargs"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
)

// TestKargPolicy: the machine applies the administrator's policy for kernel arguments.
func TestKargPolicy(t *testing.T) {
	const root = "root=/dev/disk/by-label/dm-mpath-root"
	for _, c := range []struct{ name, policy, argument, want string }{
		{"built in", "", "root=/dev/vdb", "decides which file system is booted"},
		{"multipath, as OpenShift documents it", "", root, ""},
		{"multipath refused", "refuse root=/dev/disk/by-label/dm-mpath-root other machines\n", root, "other machines"},
		{"allowed", "# A disk.\nallow root=/dev/vdb\n", "root=/dev/vdb", ""},
		{"another one allowed", "allow root=/dev/vda\n", "root=/dev/vdb", "decides which file system is booted"},
		{"refused", "refuse debug fills the console\n", "debug", "fills the console"},
		{"never", "allow ostree\n", "ostree=/x", "names the deployment to boot"},
		{"no policy", "allow a*b\n", "quiet", kargs.PolicyPath + ":\nline 1: a*b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			askServed(h, c.argument)
			if c.policy != "" {
				h.Write(kargs.PolicyPath, []byte(c.policy))
			}
			rebase := day2.Rebase{Machine: newMachine(t, h), Append: []string{c.argument}}
			_, byHand := rebase.Plan(t.Context(), day2.RunOptions{})
			err := boot(t, h)
			if c.want != "" {
				for _, err := range []error{err, byHand} {
					if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), c.want) {
						t.Errorf("error %v, want %q", err, c.want)
					}
				}
				if len(h.Ostree.Calls) != 0 || h.Reboots != 0 {
					t.Errorf("%d reboots, calls %v", h.Reboots, h.Ostree.Calls)
				}
				return
			}
			if err != nil || byHand != nil {
				t.Fatal(err, byHand)
			}
			h.Boot()
			if err := boot(t, h); err != nil {
				t.Fatal(err)
			}
			expectClosed(t, h)
			if !strings.HasSuffix(h.Options(), " "+c.argument) || h.Reboots != 1 || string(h.Read(kargs.PolicyPath)) != c.policy {
				t.Errorf("options %q after %d reboots, policy %q", h.Options(), h.Reboots, h.Read(kargs.PolicyPath))
			}
		})
	}
}

// TestArgumentsSettle: each change of the kernel arguments takes effect and settles: verify finds no difference after
// it, and the same MachineConfig again changes nothing. It can be taken back, too.
func TestArgumentsSettle(t *testing.T) {
	for _, c := range []struct{ name, first, second string }{
		{"a pool of huge pages", "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4", "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6"},
		{"two that ask for the same, and one", "nosmt nosmt", "nosmt"},
		{"consoles exchanged", "console=tty0 console=ttyS0", "console=ttyS0 console=tty0"},
		{"consoles and none", "console=tty0 console=ttyS0", ""},
		{"multipath and none", "rd.multipath=default root=/dev/disk/by-label/dm-mpath-root", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 3)
			h := hostdir.New(t)
			was := h.Options()
			for _, asked := range []string{c.first, c.second, c.first, ""} {
				spec := "  kernelArguments: [" + strings.ReplaceAll(asked, " ", ", ") + "]\n"
				if _, _, err := apply(t, h, spec); err != nil {
					t.Fatalf("%q: %v", asked, err)
				}
				if drift := verify(t, h); drift != "" {
					t.Errorf("%q: drift %s; options %s", asked, drift, h.Options())
				}
				if changed, _, err := apply(t, h, spec); err != nil || changed {
					t.Errorf("%q again: changed %v, %v; options %s", asked, changed, err, h.Options())
				}
				if once := strings.ReplaceAll(asked, "nosmt nosmt", "nosmt"); once != "" && !strings.HasSuffix(h.Options(), " "+once) {
					t.Errorf("%q: options %s", asked, h.Options())
				}
			}
			if got := kargs.Split(h.Options()).Values("root"); len(got) != 1 || len(kargs.Split(h.Options())) != len(kargs.Split(was)) {
				t.Errorf("options %s, were %s", h.Options(), was)
			}
		})
	}
}

// TestDeletedArgumentRuns: an argument that is to be gone, and with which the running kernel was started all the same,
// is a difference. A system that needs it gone is not entered under that kernel.
func TestDeletedArgumentRuns(t *testing.T) {
	h := hostdir.New(t)
	for _, spec := range []string{"  kernelArguments: [a=1, b=1]\n", "  kernelArguments: [b=1]\n"} {
		if changed, _, err := apply(t, h, spec); err != nil || !changed {
			t.Fatalf("changed %v, %v", changed, err)
		}
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %q", drift)
	}
	later := strings.Replace(string(h.Read("/proc/cmdline")), "ignition.firstboot", "", 1)
	h.Write("/proc/cmdline", []byte(strings.TrimSpace(later)+" a=1 quiet\n")) // at the boot loader's prompt
	if drift := verify(t, h); drift != "kernel argument a=1: not in the boot entry, but the running kernel was started with it" {
		t.Errorf("drift %q", drift)
	}
	h.AllowSoftReboots()
	done := rebase(t, h, day2.Rebase{Delete: []string{"a=1"}, Pinning: management(t, "0-1")}, settings.RebootSoft, nil)
	if strings.Join(done.ways, " ") != "reboot" || !strings.Contains(done.notes, "not by a soft reboot, because the kernel arguments change") {
		t.Errorf("it goes by %q: %s", done.ways, done.notes)
	}
	h.Boot()
	if drift := verify(t, h); drift != "" {
		t.Errorf("after the reboot: drift %q", drift)
	}
}
