package stories_test

import (
	"os"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/test/worlds/hostdir"
)

// TestInitramfsOverlay: a change of kernel arguments keeps the initramfs files that the running system has beside
// its image's, whether it is made in the started system or before.
func TestInitramfsOverlay(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, h *hostdir.Host) error{
		"in the system": func(t *testing.T, h *hostdir.Host) error {
			_, err := (&day2.Rebase{Machine: newMachine(t, h), Append: []string{"quiet"}}).Run(t.Context(), day2.RunOptions{})
			return err
		},
		"in the initramfs": func(t *testing.T, h *hostdir.Host) error {
			h.Write(firstboot.EncapsulatedPath, []byte(`{"spec":{"kernelArguments":["quiet"],"config":{"ignition":{"version":"3.2.0"}}}}`))
			_, err := bootEarly(t, h, &place{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &tried{Host: hostdir.New(t), t: t}
			content := h.addInitramfs()
			must(t, change(t, h.Host))
			h.Boot()
			all, err := h.Sysroot().Deployments()
			must(t, err)
			next := all[0].Entry
			if !strings.Contains(next.Options, "quiet") || len(next.Initrds) != 2 {
				t.Fatalf("the new boot entry is %+v", next)
			}
			if got, err := os.ReadFile(h.Sysroot().BootPath(next.Initrds[1])); err != nil || string(got) != content {
				t.Errorf("the second initramfs has %q, %v", got, err)
			}
		})
	}
}
