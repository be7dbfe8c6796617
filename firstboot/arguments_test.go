package firstboot_test

import (
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/kargs"
	"machine-pivot/test/hostdir"
)

// TestKargPolicy: the machine applies the administrator's policy for kernel arguments.
func TestKargPolicy(t *testing.T) {
	const root = "root=/dev/disk/by-label/dm-mpath-root"
	for _, c := range []struct{ name, policy, argument, want string }{
		{"built in", "", root, "decides which file system is booted"},
		{"allowed", "# Multipath.\nallow " + root + "\n", root, ""},
		{"another one allowed", "allow root=/dev/vda\n", root, "decides which file system is booted"},
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
			rebase := firstboot.Rebase{Machine: machine(t, h), Append: []string{c.argument}}
			_, byHand := rebase.Plan(t.Context())
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
