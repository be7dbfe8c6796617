package stories_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/worlds/hostdir"
)

// manyEntries returns a MachineConfig with 2,000 files and 200 units, half of which have
// contents and are enabled. Contents differ between versions.
func manyEntries(version int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "metadata: {name: many-%d}\nspec:\n  config:\n    ignition: {version: 3.4.0}\n    storage:\n      files:\n", version)
	for i := range 2000 {
		fmt.Fprintf(&b, "      - {path: /etc/many/%d/%d, mode: 384, contents: {source: \"data:,%d%%20%d\"}}\n", i%40, i, version, i)
	}
	b.WriteString("    systemd:\n      units:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "      - {name: many-%d.service, enabled: true, contents: \"[Service]\\nExecStart=/bin/%d\\n[Install]\\nWantedBy=multi-user.target\\n\"}\n", i, version)
		fmt.Fprintf(&b, "      - {name: none-%d.service, enabled: false}\n", i)
	}
	return []byte(b.String())
}

// BenchmarkApply plans and applies MachineConfigs of 2,000 files and 200 units, one after the
// other, each in one transaction that keeps the image. "own-s" is the time of a transaction
// without that of ostree's programs.
func BenchmarkApply(b *testing.B) {
	h := hostdir.New(b)
	var ostree time.Duration
	run := h.Run
	h.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
		start := time.Now()
		defer func() { ostree += time.Since(start) }()
		return run(ctx, argv...)
	}
	apply := func(version int) *day2.Apply {
		return &day2.Apply{
			Machine: &machine.Machine{
				Host: h.Host, Engine: &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}, Retry: retry.Policy{Tries: 1},
				Progress: &pivot.Progress{Journal: pivot.JournalIn(h.Root), Now: time.Now, Emit: func(pivot.Event) {}},
			},
			Config: day2.Config{File: "many.yaml", Data: manyEntries(version)},
		}
	}
	version := 0
	b.Run("plan", func(b *testing.B) {
		for b.Loop() {
			if plan, err := apply(version).Plan(b.Context(), day2.RunOptions{}); err != nil || len(plan.Entries) < 2200 {
				b.Fatal(len(plan.Entries), err)
			}
		}
	})
	b.Run("apply", func(b *testing.B) {
		var own time.Duration
		for b.Loop() {
			version++
			start := time.Now()
			ostree = 0
			if changed, err := apply(version).Run(b.Context(), day2.RunOptions{}); err != nil || !changed {
				b.Fatal(changed, err)
			}
			own += time.Since(start) - ostree
			b.StopTimer()
			h.Boot()
			b.StartTimer()
		}
		b.ReportMetric(own.Seconds()/float64(b.N), "own-s/op")
	})
}
