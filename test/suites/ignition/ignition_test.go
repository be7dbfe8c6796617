// Package ignition_test checks pivot's output with the real Ignition.
package ignition_test

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
	realignition "machine-pivot/test/suites/ignition"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
)

// rendered returns the MachineConfig of a worker, rendered from the files in a directory.
func rendered(t *testing.T, dir string) *authored.MachineConfig {
	t.Helper()
	rules := authored.Rules{KernelArguments: kargs.DefaultPolicy()}
	all, report, err := authored.Read(t.Context(), []string{dir}, nil, rules)
	if err != nil || len(report) > 0 {
		t.Fatal(err, report)
	}
	r := authored.Renderer{Rules: rules, Inline: func(_ context.Context, all []*authored.MachineConfig) ([]*authored.MachineConfig, problem.Report, error) {
		return all, nil, nil
	}}
	merged, report, err := r.Merge(context.Background(), all, "worker")
	if err != nil || len(report) > 0 {
		t.Fatal(err, report)
	}
	return merged
}

// built builds a static program of this module or its dependencies and returns its path.
func built(t *testing.T, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	script.Build(t, path, pkg)
	return path
}

// config returns the Ignition config in a version.
func config(t *testing.T, m *authored.MachineConfig, version string, more ...ignition.Config) []byte {
	t.Helper()
	raw, report := provision.Config(m, version, more...)
	if len(report) > 0 {
		t.Fatalf("%s: %s", version, report)
	}
	return raw
}

// Ignition's validators of both generations accept each version.
func TestValidators(t *testing.T) {
	if testing.Short() {
		t.Skip("builds Ignition's validators")
	}
	validators := map[byte]string{
		'2': built(t, "github.com/coreos/ignition/validate"),
		'3': built(t, "github.com/coreos/ignition/v2/validate"),
	}
	m := rendered(t, "testdata")
	for _, version := range authored.IgnitionVersions() {
		file := filepath.Join(t.TempDir(), version+".ign")
		if err := os.WriteFile(file, config(t, m, version), 0o644); err != nil {
			t.Fatal(err)
		}
		for generation, validator := range validators {
			out, err := exec.Command(validator, file).CombinedOutput()
			if (err == nil) != (generation == version[0]) || err == nil && len(out) > 0 {
				t.Errorf("version %s, validator of version %c: %v\n%s", version, generation, err, out)
			}
		}
	}
}

// Debian's Ignition applies all versions that it supports, up to 3.3, to a directory: files, units
// and the program are there, and a first boot can start.
func TestApply(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the whole program, and applies it four times")
	}
	need.Ignition(t)
	program := built(t, "machine-pivot/cmd/pivot")
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	more, err := provision.Embed(binary)
	if err != nil {
		t.Fatal(err)
	}
	m := rendered(t, "testdata")
	for _, version := range []string{"3.3.0", "3.2.0", "3.1.0", "3.0.0"} {
		t.Run(version, func(t *testing.T) {
			host := t.TempDir()
			if err := realignition.Apply(t.Context(), config(t, m, version, more), host); err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]string{
				"etc/motd":                         "hello\n",
				"etc/zipped":                       "hello",
				"etc/systemd/system/hello.service": "[Service]\nExecStart=/usr/bin/true\n",
				"etc/systemd/system/sshd.service.d/10-x.conf": "[Unit]\nDescription=changed\n",
			} {
				if got, err := os.ReadFile(filepath.Join(host, path)); err != nil || string(got) != want {
					t.Errorf("%s: %v\n%q\nwant\n%q", path, err, got, want)
				}
			}
			if info, err := os.Stat(filepath.Join(host, "etc/secret")); err != nil || info.Mode() != 0o600 {
				t.Error(err, info)
			}
			written, err := os.ReadFile(filepath.Join(host, machineconfig.EncapsulatedPath))
			if err != nil {
				t.Fatal(err)
			}
			desired, report := machineconfig.Parse(written, machineconfig.Host{})
			if len(report) > 0 || desired.Name != m.Name || strings.Join(desired.KernelArguments, "|") != `loglevel=7|acpi_osi="!Windows 2020"` {
				t.Errorf("%+v\n%s", desired, report)
			}
			out, err := exec.Command(filepath.Join(host, "usr/local/bin/pivot"), "--version").CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), "pivot version ") {
				t.Errorf("the program that was given: %v\n%s", err, out)
			}
			preset, err := os.ReadFile(filepath.Join(host, "etc/systemd/system-preset/20-ignition.preset"))
			if err != nil || !strings.Contains(string(preset), "enable pivot-firstboot.service\n") {
				t.Errorf("%v\n%s", err, preset)
			}
			var annotations map[string]string
			text, err := os.ReadFile(filepath.Join(host, "etc/machine-config-daemon/node-annotations.json"))
			if err != nil || json.Unmarshal(text, &annotations) != nil || annotations["machineconfiguration.openshift.io/currentConfig"] != m.Name {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// TestPointer: the pointer that docs/machineconfig.md makes leads Debian's Ignition to the config, and
// a config with another hash is refused.
func TestPointer(t *testing.T) {
	if testing.Short() {
		t.Skip("runs Ignition")
	}
	need.Ignition(t)
	served := config(t, rendered(t, "testdata"), "3.2.0")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(served) }))
	t.Cleanup(web.Close)
	pointer := fmt.Sprintf(`{"ignition":{"version":"3.2.0","config":{"replace":{"source":"%s/worker.ign","verification":{"hash":"sha512-%x"}}}}}`, web.URL, sha512.Sum512(served))
	if len(pointer) > 300 {
		t.Errorf("the pointer has %d bytes", len(pointer))
	}
	host := t.TempDir()
	if err := realignition.Apply(t.Context(), []byte(pointer), host); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(host, machineconfig.EncapsulatedPath)); err != nil {
		t.Error(err)
	}
	served = append(served, '\n')
	if err := realignition.Apply(t.Context(), []byte(pointer), t.TempDir()); err == nil || !strings.Contains(err.Error(), "hash verification failed") {
		t.Errorf("another config: %v", err)
	}
}
