package authored_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/pinning"
)

// operatorConfig returns a MachineConfig in the form that the node tuning operator writes: with all members that
// Ignition's Go types emit, and an empty line before contents of files.
func operatorConfig(role, name string, files ...string) string {
	return object(role, name, `{"config":{"ignition":{"config":{"replace":{"verification":{}}},"proxy":{},"security":{"tls":{}},"timeouts":{},"version":"3.2.0"},`+
		`"passwd":{},"storage":{"files":[`+strings.Join(files, ",")+`]},"systemd":{}}}`)
}

func operatorFile(path, lines string) string {
	return fmt.Sprintf(`{"path":%q,"mode":420,"group":{},"user":{},"contents":{"verification":{},"source":"data:text/plain;charset=utf-8;base64,%s"}}`,
		path, base64.StdEncoding.EncodeToString([]byte("\n"+lines)))
}

// operatorSet returns the two files of a management set. name is the file name of the drop-in.
func operatorSet(t *testing.T, name, set string) []string {
	t.Helper()
	cpus, err := pinning.ParseCPUSet(set)
	if err != nil {
		t.Fatal(err)
	}
	w := pinning.Workloads{pinning.Management: cpus}
	return []string{
		operatorFile(pinning.KubeletPath, string(pinning.KubeletFile(w))),
		operatorFile(pinning.DropInDir+"/"+name, string(pinning.DropIn(w))),
	}
}

// A custom pool gets the MachineConfigs of the role worker and its own over them. So its own empty kubelet file
// replaces that of a worker profile; the drop-in of that profile stays.
func TestNodeTuningOperator(t *testing.T) {
	bootstrap := func(role string) string {
		return operatorConfig(role, "01-"+role+"-cpu-partitioning", operatorSet(t, pinning.ClusterDropIn, "")...)
	}
	legacy := operatorConfig("master", "02-master-workload-partitioning", operatorSet(t, "", "")[0])
	profile := operatorConfig("worker", "50-performance-x", append(operatorSet(t, pinning.ProfileDropIn, "2-3"),
		operatorFile(pinning.DropInDir+"/99-runtimes.conf", "[crio.runtime]\ninfra_ctr_cpuset = \"2-3\"\n"))...)
	all := read(t, bootstrap("master"), bootstrap("worker"), bootstrap("worker-cnf"), profile)
	for _, c := range []struct {
		name, role string
		all        []*authored.MachineConfig
		want       string // in the warning
		more       int    // warnings that a later name does not win
	}{
		{"no profile", "master", all, "its set is empty, so its pods run on all CPUs", 0},
		{"a profile", "worker", all, "is replaced by that of " + pinning.DropInDir + "/" + pinning.ProfileDropIn, 0},
		{"a pool below a profile for worker", "worker-cnf", all, "is replaced by that of " + pinning.DropInDir + "/" + pinning.ProfileDropIn, 1},
		{"a single node of the older kind", "master", read(t, legacy), "no CRI-O drop-in defines it", 0},
		{"the same with the cluster's default", "master", read(t, legacy, bootstrap("master")), "its set is empty", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := authored.Renderer{Rules: rules(), Inline: inline}
			merged, report, err := r.Merge(context.Background(), c.all, c.role)
			if err != nil || merged == nil || len(report) != 1+c.more || !strings.Contains(report.String(), "warning: ") || !strings.Contains(report.String(), c.want) || strings.Count(report.String(), "does not win") != c.more {
				t.Fatalf("%v\n%s\nwant %q", err, report, c.want)
			}
			if report, err := authored.CheckRoles(authored.Select(c.all, c.role), rules()); err != nil || report.Failed() {
				t.Errorf("validated: %v\n%s", err, report)
			}
		})
	}
}

// The same without the profile's other settings, as the encapsulated MachineConfig that a machine
// reads on its first boot. That no drop-in defines the workload is left to the check of the machine, which
// can have one.
func TestNodeTuningOperatorEncapsulated(t *testing.T) {
	pool := []string{
		operatorConfig("worker", "01-worker-cpu-partitioning", operatorSet(t, pinning.ClusterDropIn, "")...),
		operatorConfig("worker-cnf", "01-worker-cnf-cpu-partitioning", operatorSet(t, pinning.ClusterDropIn, "")...),
	}
	profile := operatorConfig("worker", "50-performance-x", operatorSet(t, pinning.ProfileDropIn, "2-3")...)
	const alone = "a single node of the older kind"
	for name, objects := range map[string][]string{
		"no profile": pool, "a profile for worker": append(pool, profile),
		alone: {operatorConfig("master", "02-master-workload-partitioning", operatorSet(t, "", "")[0])},
	} {
		t.Run(name, func(t *testing.T) {
			merged, err := authored.Merge(read(t, objects...), authored.Images{})
			if err != nil {
				t.Fatal(err)
			}
			data, err := merged.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			cpus, err := pinning.ParseCPUSet("0-3")
			if err != nil {
				t.Fatal(err)
			}
			if d, report := machineconfig.Parse(data, machineconfig.Host{CPUs: pinning.CPUsOnly(cpus)}); d == nil || len(d.Entries) == 0 || report.Failed() || (len(report) == 0) != (name == alone) {
				t.Errorf("%+v\n%s", d, report)
			}
		})
	}
}
