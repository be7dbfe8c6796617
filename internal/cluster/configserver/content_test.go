package configserver

import (
	"encoding/json"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/kargs"
)

// TestSameConfig: from an object of a cluster, machines get byte for byte what they would get from the author's
// program, in each version. So a cluster that began with that program reboots nobody.
func TestSameConfig(t *testing.T) {
	plain := rendered(t, "worker", "nosmt")
	whole := rendered(t, "worker", "quiet")
	whole.Spec.OSImageURL, whole.Spec.Extensions = imageref.FromOrigin("quay.io/os@sha256:"+strings.Repeat("a", 64)), []string{"usbguard"}
	whole.Annotations = map[string]string{machineconfig.GeneratedBy: "1.2.3"} // as a cluster's controller marks it
	if err := whole.Render("worker"); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*authored.MachineConfig{plain, whole} {
		got := decodedObject(t, m)
		for _, version := range authored.IgnitionVersions() {
			want, _ := provision.Config(m, version)
			if config, report := provision.Config(got, version); string(config) != string(want) || report.Failed() || len(config) == 0 {
				t.Errorf("%s: %s\n%s\nwant\n%s", version, report, config, want)
			}
		}
	}
}

// decodedObject returns a MachineConfig as it is read from the API server.
func decodedObject(t *testing.T, m *authored.MachineConfig) *authored.MachineConfig {
	t.Helper()
	text, err := m.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var object api.MachineConfig
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	object.APIVersion, object.Kind, object.UID, object.ResourceVersion, object.Generation = "", "", "0", "1", 1
	out, err := decode(&object, authored.Rules{KernelArguments: kargs.DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestInvalid: an object that no machine could use is an error that says so.
func TestInvalid(t *testing.T) {
	for text, want := range map[string]string{
		`{"config":"x"}`: "it is a string",
		`{"config":{"ignition":{"version":"9.0.0"}}}`: "unsupported config version",
		`{"kernelArguments":[1]}`:                     "kernelArguments[0]",
	} {
		var object api.MachineConfig
		object.Name = "rendered-worker-1"
		object.Spec.Raw = []byte(text)
		if _, err := decode(&object, authored.Rules{KernelArguments: kargs.DefaultPolicy()}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
