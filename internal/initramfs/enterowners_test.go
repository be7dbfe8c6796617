package initramfs

import (
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// TestForeign: only what ostree-prepare-root mounts may be below the root.
func TestForeign(t *testing.T) {
	mount := func(at string) *mountinfo.Info { return &mountinfo.Info{Mountpoint: at, Major: 254, Source: "/dev/x"} }
	disk := func(at string) *mountinfo.Info { return &mountinfo.Info{Mountpoint: at, Major: 8, Source: "/dev/y"} }
	ours := []*mountinfo.Info{
		mount("/sysroot"), mount("/sysroot/etc"), mount("/sysroot/usr"), mount("/sysroot/sysroot"), mount("/sysroot/boot"),
		mount("/sysroot/sysroot/ostree/deploy/os/var"),
	}
	composefs := []*mountinfo.Info{{Mountpoint: "/sysroot", Minor: 40}, mount("/sysroot/etc"), mount("/sysroot/sysroot")}
	for _, c := range []struct {
		name, reason string
		mounts       []*mountinfo.Info
	}{
		{"prepare-root's", "", ours},
		{"with composefs", "", composefs},
		{"no physical root", "is not as ostree-prepare-root mounts it", ours[:3]},
		{"two roots", "is not as ostree-prepare-root mounts it", append([]*mountinfo.Info{mount("/sysroot")}, ours...)},
		{"/var", "at /sysroot/var,", append([]*mountinfo.Info{mount("/sysroot/var")}, ours...)},
		{"another /boot", "at /sysroot/boot,", append([]*mountinfo.Info{disk("/sysroot/boot")}, composefs...)},
		{"another /var of the stateroot", "os/var,", append([]*mountinfo.Info{disk("/sysroot/sysroot/ostree/deploy/os/var")}, composefs...)},
		{"below /etc", "at /sysroot/etc/x,", append([]*mountinfo.Info{mount("/sysroot/etc/x")}, ours...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := foreignMounts("/sysroot", c.mounts)
			if (err == nil) != (c.reason == "") || err != nil && !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%v, want %q", err, c.reason)
			}
		})
	}
}
