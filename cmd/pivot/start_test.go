package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/worlds/hostdir"
)

// BenchmarkProgram runs the program as it is installed, on a machine that has what its MachineConfig says: a
// process for each run, from exec to exit. The figures are the fastest run and the median, and the
// processor time of the median.
func BenchmarkProgram(b *testing.B) {
	program := filepath.Join(b.TempDir(), "pivot")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	h := hostdir.New(b)
	h.Write("/etc/reached.json", reached(h, 100))
	for _, c := range []struct{ name, args string }{
		{"start", "version"},
		{"status", "status --root " + h.Root},
		{"plan", "plan --root " + h.Root + " --machineconfig-file /etc/reached.json"},
		{"verify", "verify --root " + h.Root},
	} {
		b.Run(c.name, func(b *testing.B) {
			var wall, cpu []time.Duration
			for b.Loop() {
				cmd := exec.Command(program, strings.Fields(c.args)...)
				start := time.Now()
				out, err := cmd.CombinedOutput()
				wall = append(wall, time.Since(start))
				if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() > 2 {
					b.Fatalf("%v\n%s", err, out)
				}
				if os.Getenv("PIVOT_BENCH_SHOW") != "" {
					b.Logf("%s", out)
				}
				cpu = append(cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			}
			slices.Sort(wall)
			slices.Sort(cpu)
			milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(milliseconds(wall[0]), "ms-fastest")
			b.ReportMetric(milliseconds(wall[len(wall)/2]), "ms-median")
			b.ReportMetric(milliseconds(cpu[len(cpu)/2]), "ms-processor")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// reached returns a MachineConfig of n files that the machine has already.
func reached(h *hostdir.Host, n int) []byte {
	var files []string
	for i := range n {
		path := fmt.Sprintf("/etc/reached/%d", i)
		h.Write(path, []byte(fmt.Sprint(i)))
		files = append(files, fmt.Sprintf(`{"path":%q,"mode":420,"contents":{"source":"data:,%d"}}`, path, i))
	}
	return fmt.Appendf(nil, `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"rendered-worker-1","labels":{"machineconfiguration.openshift.io/role":"worker"}},
"spec":{"osImageURL":"","kernelArguments":[],"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[%s]}}}}`, strings.Join(files, ","))
}
