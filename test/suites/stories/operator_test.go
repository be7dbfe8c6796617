package stories_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/pinning"
)

// TestNodeTuningOperator: files of the node tuning operator do not stop a first boot, are
// carried over, and are no drift.
func TestNodeTuningOperator(t *testing.T) {
	set := func(text string) pinning.Workloads {
		cpus, err := pinning.ParseCPUSet(text)
		if err != nil {
			t.Fatal(err)
		}
		return pinning.Workloads{pinning.Management: cpus}
	}
	const clusters, profiles = pinning.DropInDir + "/" + pinning.ClusterDropIn, pinning.DropInDir + "/" + pinning.ProfileDropIn
	for _, c := range []struct {
		name    string
		files   map[string]string
		adopted []string
		warning string
	}{
		{"a custom pool below a profile for worker", map[string]string{
			clusters: "\n" + string(pinning.DropIn(set(""))), profiles: "\n" + string(pinning.DropIn(set("2-3"))),
			pinning.KubeletPath: "\n" + string(pinning.KubeletFile(set(""))),
		}, []string{profiles, pinning.KubeletPath}, "is replaced by that of " + profiles},
		{"a single node of the older kind", map[string]string{pinning.KubeletPath: string(pinning.KubeletFile(set("")))},
			[]string{pinning.KubeletPath}, "no CRI-O drop-in defines it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			for path, text := range c.files {
				h.Write(path, []byte(text))
			}
			askServed(h, "quiet")
			plan := firstboot.FirstBoot{Machine: newMachine(t, h), File: firstboot.EncapsulatedPath}
			if p, err := plan.Plan(t.Context()); err != nil || !strings.Contains(strings.Join(p.Notes, "\n"), c.warning) {
				t.Errorf("plan %v, %v, want %q", p.Notes, err, c.warning)
			}
			if err := boot(t, h); err != nil {
				t.Fatal(err)
			}
			if got := targetFiles(t, h); !slices.Equal(got, c.adopted) {
				t.Errorf("files of the target %v, want %v", got, c.adopted)
			}
			h.Boot()
			if err := boot(t, h); err != nil || h.Reboots != 1 {
				t.Fatalf("%v, %d reboots", err, h.Reboots)
			}
			if got := verify(t, h); got != "" {
				t.Errorf("at its target: %s", got)
			}
		})
	}
}
