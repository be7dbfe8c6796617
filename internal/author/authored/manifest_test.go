package authored_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pinning"
)

func pinningManifest(t *testing.T, more ...hostfiles.File) authored.Manifest {
	t.Helper()
	_, set, err := pinning.ParseAssignment("management=0-1")
	if err != nil {
		t.Fatal(err)
	}
	w := pinning.Workloads{pinning.Management: set}
	return authored.Manifest{Name: "02-master-workload-partitioning", Role: "master", Files: append(more,
		hostfiles.NewFile(pinning.DropInPath, 0o644, pinning.DropIn(w)),
		hostfiles.NewFile(pinning.KubeletPath, 0o644, pinning.KubeletFile(w)),
	)}
}

// A manifest can be decoded again, in both formats, without problems.
func TestManifestIsReadBack(t *testing.T) {
	m := pinningManifest(t)
	for name, write := range map[string]func() ([]byte, error){"yaml": m.YAML, "json": m.JSON} {
		text, err := write()
		if err != nil {
			t.Fatal(err)
		}
		all, report := authored.Decode("x."+name, text, authored.Rules{})
		if len(report) > 0 || len(all) != 1 || all[0].Name != m.Name || all[0].Role() != "master" || len(all[0].Spec.Config.Storage.Files) != 2 {
			t.Errorf("%s: %s\n%s", name, report, text)
		}
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []authored.Manifest{{Name: "A", Role: "b"}, {Name: "a", Role: ""}, {Name: "a", Role: strings.Repeat("b", 64)}, {Name: "a\nb", Role: "c"}} {
		if wrong.Check() == nil {
			t.Errorf("name %q and role %q are taken", wrong.Name, wrong.Role)
		}
	}
}

// CPU partitioning is judged on all files that CRI-O and kubelet read.
// A cluster's own drop-in sets many other keys, and a workload that is not a partition.
func TestCheckTakesAClustersDropIns(t *testing.T) {
	const builder = "[crio]\ninternal_wipe = true\n[crio.runtime.workloads.openshift-builder]\nactivation_annotation = \"io.openshift.builder\"\n[crio.runtime.workloads.openshift-builder.resources]\n"
	check := func(m authored.Manifest, args ...string) string {
		text, err := m.YAML()
		if err != nil {
			t.Fatal(err)
		}
		all, report := authored.Decode("x", text, authored.Rules{})
		if report.Failed() {
			t.Fatal(report)
		}
		all[0].Spec.KernelArguments = args
		cpus, err := pinning.ParseCPUSet("0-3")
		if err != nil {
			t.Fatal(err)
		}
		return authored.Check(all[0], authored.Rules{CPUs: pinning.CPUsOnly(cpus)}).String()
	}
	theirs := hostfiles.NewFile(pinning.DropInDir+"/00-default", 0o644, []byte(builder))
	if got := check(pinningManifest(t, theirs)); got != "" {
		t.Errorf("beside pinning: %s", got)
	}
	if got := check(authored.Manifest{Name: "a", Role: "b", Files: []hostfiles.File{theirs}}); got != "" {
		t.Errorf("alone: %s", got)
	}
	_, set, err := pinning.ParseAssignment("management=0-1")
	if err != nil {
		t.Fatal(err)
	}
	own := pinning.Workloads{pinning.Management: set}
	inMain := authored.Manifest{Name: "a", Role: "b", Files: []hostfiles.File{
		hostfiles.NewFile(pinning.ConfigPath, 0o644, pinning.DropIn(own)), hostfiles.NewFile(pinning.KubeletPath, 0o644, pinning.KubeletFile(own))}}
	if got := check(inMain); got != "" {
		t.Errorf("in CRI-O's main configuration: %s", got)
	}
	inMain.Files = append(inMain.Files, hostfiles.NewFile(pinning.KubeletConfigPath, 0o644, []byte("kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: 2-3\n")))
	if got := check(inMain); !strings.Contains(got, `reservedSystemCPUs "2-3" differ from the CPUs of the workload "management"`) {
		t.Errorf("with kubelet's configuration: %s", got)
	}
	if got := check(pinningManifest(t), "maxcpus=1"); !strings.Contains(got, "error: $.spec.config.storage.files[0]: file "+pinning.DropInPath+`: workload "management": CPU 1 will be offline`) {
		t.Errorf("with maxcpus=1: %q", got)
	}
	later := hostfiles.NewFile(pinning.DropInDir+"/99-mine", 0o644, pinning.DropIn(pinning.Workloads{pinning.Management: {}}))
	if got := check(pinningManifest(t, later)); !strings.Contains(got, "is replaced by that of "+later.Path) || !strings.Contains(got, `differ from ""`) {
		t.Errorf("with a later drop-in: %q", got)
	}
}
