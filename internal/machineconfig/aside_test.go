package machineconfig_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
)

const foreign = `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"rendered-x"},"spec":{%}}`

// TestParseForeign: of a MachineConfig that another program has applied, what can be used is used,
// and the rest is named.
func TestParseForeign(t *testing.T) {
	file := func(path string) string { return `{"path":"` + path + `","contents":{"source":"data:,x"}}` }
	for _, c := range []struct {
		name, spec   string
		paths, names string // of the entries; parts of the report
		arguments    string
	}{
		{name: "all of it", spec: `"kernelArguments":["a=1"],"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[` + file("/etc/a") + `]}}`, paths: "/etc/a", arguments: "a=1"},
		{name: "a path that pivot does not manage", spec: `"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[` + file("/run/x") + "," + file("/etc/a") + "," + file("/proc/y") + `]}}`,
			paths: "/etc/a", names: "files[0]: ,files[2]: "},
		{name: "an argument", spec: `"kernelArguments":["a=1","ostree=/x","b=2"]`, arguments: "a=1 b=2", names: "kernelArguments[1]"},
		{name: "Ignition 2", spec: `"kernelArguments":["a=1"],"config":{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/etc/a"}]}}`, arguments: "a=1", names: "$.spec.config"},
		{name: "a kernel type of a later release", spec: `"kernelType":"quantum","kernelArguments":["a=1"]`, arguments: "a=1", names: "$.spec.kernelType"},
		{name: "lists that are none", spec: `"kernelArguments":7,"extensions":{},"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[` + file("/etc/a") + `]}}`, paths: "/etc/a", names: "$.spec.kernelArguments,$.spec.extensions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			desired, report := machineconfig.ParseForeign([]byte(strings.Replace(foreign, "%", c.spec, 1)), machineconfig.Host{})
			var paths []string
			for _, f := range desired.Entries {
				paths = append(paths, f.Path)
			}
			if got := strings.Join(paths, " "); got != c.paths || strings.Join(desired.KernelArguments, " ") != c.arguments || desired.Name != "rendered-x" {
				t.Errorf("%q has %q and arguments %q: %v", desired.Name, got, desired.KernelArguments, report)
			}
			for _, want := range strings.Split(c.names, ",") {
				if !strings.Contains(report.String(), want) {
					t.Errorf("%q is not named: %v", want, report)
				}
			}
			if report.Failed() || (c.names == "") != (len(report) == 0) {
				t.Errorf("report %v", report)
			}
		})
	}
	for _, nothing := range []string{"", " ", "{", "null", "[]", "7", "{}", strings.Replace(foreign, "MachineConfig", "ConfigMap", 1), strings.Replace(foreign, `{%}`, "null", 1), `{"spec":[]}`} {
		if desired, report := machineconfig.ParseForeign([]byte(nothing), machineconfig.Host{}); desired == nil || len(desired.Entries) > 0 || len(report) == 0 {
			t.Errorf("%q: %+v, %v", nothing, desired, report)
		}
	}
}

// FuzzParseForeign: it always ends with what can be used.
func FuzzParseForeign(f *testing.F) {
	f.Add(strings.Replace(foreign, "%", `"kernelArguments":["ostree=x",7],"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/run/x"},{"path":"/etc/a"}]}}`, 1))
	f.Add(`{"spec":{"config":{"systemd":{"units":[{"name":"x","enabled":7}]}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		desired, report := machineconfig.ParseForeign([]byte(text), machineconfig.Host{})
		if desired == nil || report.Failed() {
			t.Fatalf("%+v, %v", desired, report)
		}
		for _, p := range report {
			if p.Severity != problem.Warning {
				t.Errorf("%v", p)
			}
		}
	})
}
