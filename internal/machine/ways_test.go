package machine

import (
	"errors"
	"slices"
	"testing"

	"machine-pivot/internal/settings"
)

// TestWaysOf: each method's ways into the next system, in order. The last is always an ordinary reboot. A system
// that is entered only once is entered by the start of a kernel.
func TestWaysOf(t *testing.T) {
	for _, c := range []struct {
		method settings.RebootMethod
		ways   []settings.RebootMethod
		once   settings.RebootMethod
	}{
		{settings.RebootFirmware, []settings.RebootMethod{"reboot"}, "reboot"},
		{settings.RebootKexec, []settings.RebootMethod{"kexec", "reboot"}, "kexec"},
		{settings.RebootSoft, []settings.RebootMethod{"soft", "reboot"}, "reboot"},
		{settings.RebootEnter, []settings.RebootMethod{"enter", "reboot"}, "reboot"},
		{settings.RebootAuto, []settings.RebootMethod{"enter", "soft", "kexec", "reboot"}, "kexec"},
	} {
		var got []settings.RebootMethod
		for _, way := range WaysOf(c.method) {
			got = append(got, way.Method)
		}
		if !slices.Equal(got, c.ways) {
			t.Errorf("%s: %v, want %v", c.method, got, c.ways)
		}
		if got := OnceBy(c.method); got != c.once {
			t.Errorf("%s, once: %s, want %s", c.method, got, c.once)
		}
	}
}

// TestWayCannot: only a way that starts a kernel can enter a system once, or one with other arguments.
func TestWayCannot(t *testing.T) {
	for _, way := range WaysOf(settings.RebootAuto) {
		starts := way.Method == settings.RebootKexec || way.Method == settings.RebootFirmware
		for _, next := range []NextSystem{{Once: true}, {Kargs: true}, {Once: true, Kargs: true}} {
			if err := way.cannot(next); (err == nil) != starts {
				t.Errorf("%s, %+v: %v", way.Method, next, err)
			}
		}
		if err := way.cannot(NextSystem{}); err != nil {
			t.Errorf("%s: %v", way.Method, err)
		}
	}
}

// TestWaysText: the text about the ways before the commit, for each combination of what is impossible.
func TestWaysText(t *testing.T) {
	enter, soft, kexec := errors.New("E"), errors.New("S"), errors.New("K")
	const enters = "without a reboot if the initramfs commits it, and kernel, initramfs and kernel arguments stay"
	const softly = "by a soft reboot if kernel, initramfs, kernel arguments and SELinux policy stay"
	const reboot = "by an ordinary reboot"
	for _, c := range []struct {
		method             settings.RebootMethod
		enter, soft, kexec error
		want               string
	}{
		{settings.RebootFirmware, nil, nil, nil, ""},
		{settings.RebootFirmware, enter, soft, kexec, ""},
		{settings.RebootKexec, nil, nil, nil, "by kexec, else " + reboot},
		{settings.RebootKexec, enter, nil, kexec, reboot + "; not by kexec, because K"},
		{settings.RebootSoft, enter, nil, nil, softly + ", else " + reboot},
		{settings.RebootSoft, nil, soft, kexec, reboot + "; not by a soft reboot, because S"},
		{settings.RebootEnter, nil, soft, kexec, enters + ", else " + reboot},
		{settings.RebootEnter, enter, nil, nil, reboot + "; not without a reboot, because E"},
		{settings.RebootAuto, nil, nil, nil, enters + ", else " + softly + ", else by kexec, else " + reboot},
		{settings.RebootAuto, enter, nil, nil, softly + ", else by kexec, else " + reboot + "; not without a reboot, because E"},
		{settings.RebootAuto, nil, soft, nil, enters + ", else by kexec, else " + reboot + "; not by a soft reboot, because S"},
		{settings.RebootAuto, enter, nil, kexec, softly + ", else " + reboot + "; not without a reboot, because E; not by kexec, because K"},
		{settings.RebootAuto, enter, soft, kexec, reboot + "; not without a reboot, because E; not by a soft reboot, because S; not by kexec, because K"},
	} {
		want := c.want
		if want != "" {
			want = "the new system is entered " + want
		}
		cannot := map[settings.RebootMethod]error{settings.RebootEnter: c.enter, settings.RebootSoft: c.soft, settings.RebootKexec: c.kexec}
		if got := (Ways{ordered: WaysOf(c.method), cannot: cannot}).Text(); got != want {
			t.Errorf("%s, %v: %q, want %q", c.method, cannot, got, want)
		}
	}
}
