package stories_test

import (
	"os"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
)

// TestLoaderIsNoLink: a /boot/loader with which ostree refuses to work is found by a plan as well as by a change,
// before anything is pulled. The machine boots with it, so a command that changes nothing continues.
func TestLoaderIsNoLink(t *testing.T) {
	for name, spoil := range map[string]func(link, to string) error{
		"a directory": func(link, to string) error { return os.Rename(to, link) },
		"a link elsewhere": func(link, to string) error {
			if err := os.Rename(to, link+".x"); err != nil {
				return err
			}
			return os.Symlink("loader.x", link)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			link := h.Physical() + "/boot/loader"
			to, err := os.Readlink(link)
			must(t, err)
			must(t, os.Remove(link))
			must(t, spoil(link, h.Physical()+"/boot/"+to))
			b := firstboot.FirstBoot{Machine: newMachine(t, h), File: firstboot.EncapsulatedPath}
			_, err = b.Plan(t.Context())
			for what, err := range map[string]error{"plan": err, "first boot": boot(t, h)} {
				if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "/boot/loader is") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if len(h.Ostree.Calls) > 0 || h.Reboots > 0 {
				t.Errorf("calls %v, %d reboots", h.Ostree.Calls, h.Reboots)
			}
		})
	}
}
