package host_test

import (
	"errors"
	"slices"
	"testing"

	"machine-pivot/internal/host"
)

// TestWays: each method's ways into the next system, in order. The last is always an ordinary reboot. A system
// that is entered only once is never entered by a soft reboot.
func TestWays(t *testing.T) {
	for _, c := range []struct {
		method host.RebootMethod
		ways   []host.RebootMethod
		once   host.RebootMethod
	}{
		{host.RebootFirmware, []host.RebootMethod{"reboot"}, "reboot"},
		{host.RebootKexec, []host.RebootMethod{"kexec", "reboot"}, "kexec"},
		{host.RebootSoft, []host.RebootMethod{"soft", "reboot"}, "reboot"},
		{host.RebootAuto, []host.RebootMethod{"soft", "kexec", "reboot"}, "kexec"},
	} {
		if got := host.Ways(c.method); !slices.Equal(got, c.ways) {
			t.Errorf("%s: %v, want %v", c.method, got, c.ways)
		}
		if got := c.method.Once(); got != c.once {
			t.Errorf("%s, once: %s, want %s", c.method, got, c.once)
		}
	}
}

// TestForesee: what is said about the ways before the commit, for each combination of what is impossible.
func TestForesee(t *testing.T) {
	soft, kexec := errors.New("S"), errors.New("K")
	const if_ = "a soft reboot if kernel, initramfs, kernel arguments and SELinux policy stay"
	for _, c := range []struct {
		method      host.RebootMethod
		soft, kexec error
		want        string
	}{
		{host.RebootFirmware, nil, nil, ""},
		{host.RebootFirmware, soft, kexec, ""},
		{host.RebootKexec, nil, nil, "the new system is entered by kexec, else by an ordinary reboot"},
		{host.RebootKexec, nil, kexec, "the new system is entered by an ordinary reboot; not kexec, because K"},
		{host.RebootSoft, nil, nil, "the new system is entered by " + if_ + ", else by an ordinary reboot"},
		{host.RebootSoft, soft, kexec, "the new system is entered by an ordinary reboot; not a soft reboot, because S"},
		{host.RebootAuto, nil, nil, "the new system is entered by " + if_ + ", else by kexec, else by an ordinary reboot"},
		{host.RebootAuto, soft, nil, "the new system is entered by kexec, else by an ordinary reboot; not a soft reboot, because S"},
		{host.RebootAuto, nil, kexec, "the new system is entered by " + if_ + ", else by an ordinary reboot; not kexec, because K"},
		{host.RebootAuto, soft, kexec, "the new system is entered by an ordinary reboot; not a soft reboot, because S; not kexec, because K"},
	} {
		if got := host.Foresee(c.method, map[host.RebootMethod]error{host.RebootSoft: c.soft, host.RebootKexec: c.kexec}); got != c.want {
			t.Errorf("%s, soft %v, kexec %v: %q, want %q", c.method, c.soft, c.kexec, got, c.want)
		}
	}
}
