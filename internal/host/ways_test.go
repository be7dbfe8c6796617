package host_test

import (
	"errors"
	"slices"
	"testing"

	"machine-pivot/internal/host"
)

// TestWays: each method's ways into the next system, in order. The last is always an ordinary reboot. A system
// that is entered only once is entered by the start of a kernel.
func TestWays(t *testing.T) {
	for _, c := range []struct {
		method host.RebootMethod
		ways   []host.RebootMethod
		once   host.RebootMethod
	}{
		{host.RebootFirmware, []host.RebootMethod{"reboot"}, "reboot"},
		{host.RebootKexec, []host.RebootMethod{"kexec", "reboot"}, "kexec"},
		{host.RebootSoft, []host.RebootMethod{"soft", "reboot"}, "reboot"},
		{host.RebootEnter, []host.RebootMethod{"enter", "reboot"}, "reboot"},
		{host.RebootAuto, []host.RebootMethod{"enter", "soft", "kexec", "reboot"}, "kexec"},
	} {
		var got []host.RebootMethod
		for _, way := range host.Ways(c.method) {
			got = append(got, way.Method)
		}
		if !slices.Equal(got, c.ways) {
			t.Errorf("%s: %v, want %v", c.method, got, c.ways)
		}
		if got := c.method.Once(); got != c.once {
			t.Errorf("%s, once: %s, want %s", c.method, got, c.once)
		}
	}
}

// TestWayCannot: only a way that starts a kernel leads into a system that is entered once, or has other arguments.
func TestWayCannot(t *testing.T) {
	for _, way := range host.Ways(host.RebootAuto) {
		starts := way.Method == host.RebootKexec || way.Method == host.RebootFirmware
		for _, next := range []host.Next{{Once: true}, {Kargs: true}, {Once: true, Kargs: true}} {
			if err := way.Cannot(next); (err == nil) != starts {
				t.Errorf("%s, %+v: %v", way.Method, next, err)
			}
		}
		if err := way.Cannot(host.Next{}); err != nil {
			t.Errorf("%s: %v", way.Method, err)
		}
	}
}

// TestForesee: what is said about the ways before the commit, for each combination of what is impossible.
func TestForesee(t *testing.T) {
	enter, soft, kexec := errors.New("E"), errors.New("S"), errors.New("K")
	const enters = "without a reboot if the initramfs commits it, and kernel, initramfs and kernel arguments stay"
	const softly = "by a soft reboot if kernel, initramfs, kernel arguments and SELinux policy stay"
	const reboot = "by an ordinary reboot"
	for _, c := range []struct {
		method             host.RebootMethod
		enter, soft, kexec error
		want               string
	}{
		{host.RebootFirmware, nil, nil, nil, ""},
		{host.RebootFirmware, enter, soft, kexec, ""},
		{host.RebootKexec, nil, nil, nil, "by kexec, else " + reboot},
		{host.RebootKexec, enter, nil, kexec, reboot + "; not by kexec, because K"},
		{host.RebootSoft, enter, nil, nil, softly + ", else " + reboot},
		{host.RebootSoft, nil, soft, kexec, reboot + "; not by a soft reboot, because S"},
		{host.RebootEnter, nil, soft, kexec, enters + ", else " + reboot},
		{host.RebootEnter, enter, nil, nil, reboot + "; not without a reboot, because E"},
		{host.RebootAuto, nil, nil, nil, enters + ", else " + softly + ", else by kexec, else " + reboot},
		{host.RebootAuto, enter, nil, nil, softly + ", else by kexec, else " + reboot + "; not without a reboot, because E"},
		{host.RebootAuto, nil, soft, nil, enters + ", else by kexec, else " + reboot + "; not by a soft reboot, because S"},
		{host.RebootAuto, enter, nil, kexec, softly + ", else " + reboot + "; not without a reboot, because E; not by kexec, because K"},
		{host.RebootAuto, enter, soft, kexec, reboot + "; not without a reboot, because E; not by a soft reboot, because S; not by kexec, because K"},
	} {
		want := c.want
		if want != "" {
			want = "the new system is entered " + want
		}
		cannot := map[host.RebootMethod]error{host.RebootEnter: c.enter, host.RebootSoft: c.soft, host.RebootKexec: c.kexec}
		if got := host.Foresee(host.Ways(c.method), cannot); got != want {
			t.Errorf("%s, %v: %q, want %q", c.method, cannot, got, want)
		}
	}
}
