package authored_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/pinning"
	"machine-pivot/kargs"
)

// TestInstallConfigs: each file of testdata/installconfig has the expected MachineConfigs or report in a golden file. UPDATE_GOLDEN=1
// rewrites the golden files.
func TestInstallConfigs(t *testing.T) {
	files, err := filepath.Glob("testdata/installconfig/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all, report := authored.FromInstallConfig(filepath.Base(file), data, rules())
		var b strings.Builder
		if len(report) > 0 {
			b.WriteString(report.String() + "\n")
		}
		for _, mc := range all {
			text, err := mc.YAML()
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString("---\n" + string(text))
		}
		golden := strings.TrimSuffix(file, ".yaml") + ".golden"
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != b.String() {
			t.Errorf("%s: %v\n%s\nwant\n%s", file, err, &b, want)
		}
	}
}

// The pinning package accepts the generated pinning files.
func TestPartitionsRoundTrip(t *testing.T) {
	all, report := authored.FromInstallConfig("a", []byte("compute: [{name: worker, workload: {partitions: [{name: management, cpuIDs: '0-1,52-53'}]}}]"), rules())
	if len(all) != 1 || len(report) > 0 {
		t.Fatal(all, report)
	}
	contents := map[string][]byte{}
	for _, f := range all[0].Spec.Config.Storage.Files {
		content, err := ignition.Content(f.Contents, ignition.NewRoom(1<<20, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		contents[f.Path] = content
	}
	present, _ := pinning.ParseCPUSet("0-63")
	if problems := pinning.Inspect(pinning.Input{Files: contents, Machine: pinning.CPUsOnly(present)}).Problems; len(problems) > 0 || len(contents) != 2 {
		t.Error(contents, problems)
	}
	few, _ := pinning.ParseCPUSet("0-3")
	if _, report := authored.FromInstallConfig("a", []byte("compute: [{workload: {partitions: [{name: management, cpuIDs: 0-7}]}}]"),
		authored.Rules{KernelArguments: kargs.DefaultPolicy(), CPUs: pinning.CPUsOnly(few)}); !strings.Contains(report.String(), "the machine has no CPU 4-7, only 0-3") {
		t.Error(report)
	}
}

func FuzzInstallConfig(f *testing.F) {
	files, _ := filepath.Glob("testdata/installconfig/*.yaml")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		all, report := authored.FromInstallConfig("f.yaml", in, rules())
		if report.Failed() && len(all) > 0 {
			t.Error("MachineConfigs of what was refused")
		}
		// Whatever FromInstallConfig returns can be decoded as MachineConfigs.
		for _, mc := range all {
			text, err := mc.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if _, report := authored.Decode(mc.Name, text, rules()); report.Failed() {
				t.Errorf("%s\n%s", text, report)
			}
		}
	})
}
