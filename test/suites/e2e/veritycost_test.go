package e2e_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/vm"
)

// costScript imports an image in turn into empty repositories with and without fs-verity, and prints the seconds of
// each import: by the clock, and of the processor.
const costScript = `#!/bin/bash
set -e
cd /var/tmp
for round in 1 2 3; do
	for fsverity in no yes; do
		rm -rf repo; ostree init --repo=repo --mode=bare; ostree config --repo=repo set ex-integrity.fsverity $fsverity
		sync; echo 3 >/proc/sys/vm/drop_caches
		TIMEFORMAT="@@cost $fsverity %R %U %S"
		time pivot image import --repo repo "$1" >/dev/null
		echo "@@objects $fsverity $(find repo/objects -type f | wc -l) $(lsattr -R repo/objects 2>/dev/null | grep -c '^[^ ]*V')"
	done
done
`

// BenchmarkVerity measures what fs-verity costs an import, in a guest with such a kernel, on ext4:
// docs/dev/benchmark.md. Everything is emulated where there is no KVM, so only the relation of the two counts.
func BenchmarkVerity(b *testing.B) {
	l, err := bootlab.NewOf(b.Context(), "../../..", vm.GuestSpec{Suite: vm.Forky}, os.Stderr)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	img, err := oscontainer.Encapsulated(l.Guest.BareRepo(), l.Guest.CommitB, oscontainer.WithWorkDir(b.TempDir()), oscontainer.WithChunks(8))
	if err != nil {
		b.Fatal(err)
	}
	image, err := l.Push(b.Context(), "cost", img)
	if err != nil {
		b.Fatal(err)
	}
	m, err := l.MachineWith(b.Context(), "cost", bootlab.Setup{
		Files:  append(bootlab.Typed("cost", "/etc/cost "+image, "PathExists=/etc/cost"), vm.TreeFile{Path: "/etc/cost", Mode: 0o755, Content: []byte(costScript)}),
		Layout: vm.Layout{SeparateBoot: true, Verity: true}, SizeMiB: 4096,
	}, io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r, err := m.Boot(b.Context(), vm.BootOptions{})
		if err != nil {
			b.Fatal(err)
		}
		reportCost(b, r)
	}
}

// reportCost reports the least seconds of the imports in a boot, and what those with fs-verity take of the others'.
func reportCost(b *testing.B, r *vm.BootResult) {
	b.Helper()
	wall, cpu := map[string]float64{}, map[string]float64{}
	least := func(all map[string]float64, key string, value float64) {
		if had, there := all[key]; !there || value < had {
			all[key] = value
		}
	}
	for _, line := range r.Serial {
		if _, text, found := strings.Cut(line.Text, "@@objects "); found {
			var fsverity string
			var objects, sealed int
			if _, err := fmt.Sscan(text, &fsverity, &objects, &sealed); err != nil || objects == 0 || sealed != map[string]int{"no": 0, "yes": objects}[fsverity] {
				b.Errorf("fs-verity, regular objects, and how many of them have it: %s (%v)", text, err)
			}
		}
		_, text, found := strings.Cut(line.Text, "@@cost ")
		if !found {
			continue
		}
		var fsverity string
		var real, user, system float64
		if _, err := fmt.Sscan(text, &fsverity, &real, &user, &system); err != nil {
			b.Fatalf("%q: %v", text, err)
		}
		b.Log(text)
		least(wall, fsverity, real)
		least(cpu, fsverity, user+system)
	}
	if len(wall) != 2 {
		b.Fatalf("the machine has measured %v", wall)
	}
	for _, fsverity := range []string{"no", "yes"} {
		b.ReportMetric(wall[fsverity], "s/wall,fsverity="+fsverity)
		b.ReportMetric(cpu[fsverity], "s/cpu,fsverity="+fsverity)
	}
	b.ReportMetric(wall["yes"]/wall["no"], "wall-ratio")
	b.ReportMetric(cpu["yes"]/cpu["no"], "cpu-ratio")
}
