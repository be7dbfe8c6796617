package stories_test

import (
	"os"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/settings"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// rebased changes a host by hand, with the kernel arguments of images. It returns the notes.
func rebased(t *testing.T, h *hostdir.Host, r day2.Rebase) (notes string, err error) {
	t.Helper()
	r.Machine = newMachine(t, h)
	applying(r.Machine)
	r.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventNoted {
			notes += e.Message + "\n"
		}
	}
	_, err = r.Run(t.Context(), day2.RunOptions{})
	return notes, err
}

// bootFIPS boots a host, and sets its kernel's FIPS mode from the command line.
func bootFIPS(t *testing.T, h *hostdir.Host) {
	t.Helper()
	h.Boot()
	h.Write("/proc/sys/crypto/fips_enabled", []byte(map[bool]string{true: "1\n", false: "0\n"}[kargs.Split(h.Options()).FIPS()]))
}

// withFIPS returns a host with fips=1 in its boot entry and a kernel in FIPS mode.
func withFIPS(t *testing.T) *hostdir.Host {
	t.Helper()
	h := hostdir.New(t)
	h.Write(kargs.PolicyPath, []byte("allow fips=1\n"))
	_, err := rebased(t, h, day2.Rebase{Append: []string{"fips=1"}})
	must(t, err)
	bootFIPS(t, h)
	must(t, os.Remove(h.Path(kargs.PolicyPath)))
	return h
}

// TestFIPSSwitched: kernel arguments that switch FIPS mode are refused, whatever brings them, before the next boot has
// changed. The administrator's policy, or the image that has fips=1, can permit it where no MachineConfig is applied.
func TestFIPSSwitched(t *testing.T) {
	image := func(t *testing.T, h *hostdir.Host, text string) string {
		t.Helper()
		return h.Push(h.NativeImage(withImageKargs(text)))
	}
	on := "with them the next boot has FIPS mode on, and this machine has it off"
	off := "with them the next boot has FIPS mode off, and this machine has it on"
	for _, c := range []struct {
		name   string
		fips   bool // of the machine
		change func(t *testing.T, h *hostdir.Host) (notes string, err error)
		want   string // "": it is accepted
	}{
		{"append", false, func(t *testing.T, h *hostdir.Host) (string, error) {
			return rebased(t, h, day2.Rebase{Append: []string{"fips=1"}})
		}, on},
		{"a number", false, func(t *testing.T, h *hostdir.Host) (string, error) {
			return rebased(t, h, day2.Rebase{Append: []string{"fips=0 fips=0x2"}})
		}, on},
		{"what it has", false, func(t *testing.T, h *hostdir.Host) (string, error) {
			return rebased(t, h, day2.Rebase{Append: []string{"fips=0"}})
		}, ""},
		{"the file of the old tool", false, func(t *testing.T, h *hostdir.Host) (string, error) {
			h.Write(kargs.LegacyPath, []byte("ADD fips=1\n"))
			return rebased(t, h, day2.Rebase{})
		}, on},
		{"permitted by an image", false, func(t *testing.T, h *hostdir.Host) (string, error) {
			return rebased(t, h, day2.Rebase{Image: image(t, h, `kargs = ["fips=1"]`)})
		}, ""},
		{"image of the other mode", false, func(t *testing.T, h *hostdir.Host) (string, error) {
			return rebased(t, h, day2.Rebase{Image: image(t, h, `kargs = ["fips=0"]`), Append: []string{"fips=1"}})
		}, on},
		{"image and MachineConfig", false, func(t *testing.T, h *hostdir.Host) (string, error) {
			h.Write(settings.Path, []byte("image-kargs=apply\n"))
			_, notes, err := apply(t, h, "  osImageURL: "+image(t, h, `kargs = ["fips=1"]`)+"\n  kernelArguments: [a=1]\n")
			return notes, err
		}, on},
		{"image, and left out", false, func(t *testing.T, h *hostdir.Host) (string, error) {
			return rebased(t, h, day2.Rebase{Image: image(t, h, `kargs = ["fips=1"]`), Delete: []string{"fips"}})
		}, ""},
		{"delete", true, func(t *testing.T, h *hostdir.Host) (string, error) {
			return rebased(t, h, day2.Rebase{Delete: []string{"fips=1"}})
		}, off},
		{"overridden", true, func(t *testing.T, h *hostdir.Host) (string, error) {
			return rebased(t, h, day2.Rebase{Append: []string{"fips=0"}})
		}, off},
		{"image, and replaced", true, func(t *testing.T, h *hostdir.Host) (string, error) {
			return rebased(t, h, day2.Rebase{Image: image(t, h, `kargs = ["fips=1"]`), Delete: []string{"fips=1"}})
		}, off},
		{"image that has it too", true, func(t *testing.T, h *hostdir.Host) (string, error) {
			return rebased(t, h, day2.Rebase{Image: image(t, h, `kargs = ["fips=1"]`)})
		}, ""},
		{"image after another", true, func(t *testing.T, h *hostdir.Host) (string, error) {
			if notes, err := rebased(t, h, day2.Rebase{Image: image(t, h, `kargs = ["fips=1"]`)}); err != nil {
				return notes, err
			}
			bootFIPS(t, h)
			return rebased(t, h, day2.Rebase{Image: image(t, h, `kargs = ["loglevel=4"]`)})
		}, off},
		{"image after another, and kept", true, func(t *testing.T, h *hostdir.Host) (string, error) {
			if notes, err := rebased(t, h, day2.Rebase{Image: image(t, h, `kargs = ["fips=1"]`)}); err != nil {
				return notes, err
			}
			bootFIPS(t, h)
			return rebased(t, h, day2.Rebase{Image: image(t, h, `kargs = ["loglevel=4"]`), Append: []string{"fips=1"}})
		}, ""},
		{"MachineConfig", true, func(t *testing.T, h *hostdir.Host) (string, error) {
			if _, notes, err := apply(t, h, "  fips: true\n  kernelArguments: [fips=1, a=1]\n"); err != nil {
				return notes, err
			}
			bootFIPS(t, h)
			h.Write(kargs.PolicyPath, []byte("allow fips=0\n")) // does not count: spec.fips says otherwise
			_, notes, err := apply(t, h, "  fips: true\n  kernelArguments: [a=1]\n")
			return notes, err
		}, off},
		{"permitted", false, func(t *testing.T, h *hostdir.Host) (string, error) {
			h.Write(kargs.PolicyPath, []byte("allow fips=1\n"))
			notes, err := rebased(t, h, day2.Rebase{Append: []string{"fips=1"}})
			if !strings.Contains(notes, "warning: with the kernel arguments that are asked for, the next boot has FIPS mode on") {
				t.Errorf("notes %s", notes)
			}
			return notes, err
		}, ""},
		{"permitted, the other way", true, func(t *testing.T, h *hostdir.Host) (string, error) {
			h.Write(kargs.PolicyPath, []byte("allow fips=1\n"))
			return rebased(t, h, day2.Rebase{Delete: []string{"fips"}})
		}, off},
		{"permitted to go", true, func(t *testing.T, h *hostdir.Host) (string, error) {
			h.Write(kargs.PolicyPath, []byte("warn fips we know\n"))
			return rebased(t, h, day2.Rebase{Delete: []string{"fips"}})
		}, ""},
		{"as the kernel runs already", false, func(t *testing.T, h *hostdir.Host) (string, error) {
			h.Write("/proc/sys/crypto/fips_enabled", []byte("1\n")) // given at the boot loader's prompt
			return rebased(t, h, day2.Rebase{Append: []string{"fips=1"}})
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			if c.fips {
				h = withFIPS(t)
			}
			notes, err := c.change(t, h)
			if c.want == "" {
				if err != nil || strings.Contains(notes, "FIPS") != strings.HasPrefix(c.name, "permitted") {
					t.Errorf("%v, notes %s", err, notes)
				}
				return
			}
			if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
				t.Errorf("error %v", err)
			}
			if h.Boot(); kargs.Split(h.Options()).FIPS() != c.fips {
				t.Errorf("the next boot has %s", h.Options())
			}
		})
	}
}

// TestFIPSOfOthers: a change that does not concern FIPS mode is not refused where another program has switched it for
// the next boot, and says so. So does a rollback to another mode. A plan says what the change would.
func TestFIPSOfOthers(t *testing.T) {
	h := withFIPS(t)
	r := day2.Rollback{Machine: newMachine(t, h)}
	h.Ostree.Version = "2023.6"
	var notes string
	r.Progress.Emit = func(e pivot.Event) { notes += e.Message + "\n" }
	must(t, r.Run(t.Context()))
	if !strings.Contains(notes, "warning: with the kernel arguments of that deployment, the next boot has FIPS mode off, and this machine has it on") {
		t.Errorf("the rollback says %s", notes)
	}
	h.Boot()
	h.Write("/proc/sys/crypto/fips_enabled", []byte("1\n"))
	notes, err := rebased(t, h, day2.Rebase{Append: []string{"a=1"}})
	if err != nil || !strings.Contains(notes, "warning: the kernel runs with FIPS mode on, and the next boot has it off") {
		t.Errorf("%v, notes %s", err, notes)
	}
	bootFIPS(t, h)
	must(t, os.Remove(h.Path(kargs.PolicyPath))) // of withFIPS: the rollback is to the system before
	plan := day2.Rebase{Machine: newMachine(t, h), Append: []string{"fips=1"}}
	if _, err := plan.Plan(t.Context(), day2.RunOptions{}); fault.KindOf(err) != fault.Refused || !strings.Contains(fault.HintOf(err), kargs.PolicyPath+": allow fips=1") {
		t.Errorf("a plan: %v, hint %s", err, fault.HintOf(err))
	}
}

// TestLegacyArgumentsUnreadable: a file of arguments that cannot be read is no file without arguments: nothing is committed.
func TestLegacyArgumentsUnreadable(t *testing.T) {
	h := hostdir.New(t)
	must(t, os.MkdirAll(h.Path(kargs.LegacyPath), 0o755))
	_, err := (&day2.Rebase{Machine: newMachine(t, h), Image: h.Image}).Run(t.Context(), day2.RunOptions{})
	if err == nil || !strings.Contains(err.Error(), kargs.LegacyPath) || len(h.Ostree.Calls) > 0 {
		t.Errorf("error %v, calls %q", err, h.Ostree.Calls)
	}
}
