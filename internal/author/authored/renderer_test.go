package authored_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

func object(role, name, spec string) string {
	return `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"` + name +
		`","labels":{"machineconfiguration.openshift.io/role":"` + role + `"}},"spec":` + spec + `}`
}

// tree writes files into a temporary directory and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A directory is read in the order of file names. Links are followed, because Kubernetes mounts a
// ConfigMap as links.
func TestRead(t *testing.T) {
	dir := tree(t, map[string]string{
		"b.yaml": object("worker", "b", "{}"), "a.yml": object("worker", "a", "{}"),
		"notes.txt": "not YAML: [", ".hidden.yaml": "[", "deeper/c.yaml": "[", "..data/d.json": object("worker", "d", "{}"),
	})
	if err := os.Symlink("..data/d.json", filepath.Join(dir, "d.json")); err != nil {
		t.Fatal(err)
	}
	all, report, err := authored.Read(t.Context(), []string{dir, input.Stdin}, strings.NewReader(object("worker", "stdin", "{}")), rules())
	var names []string
	for _, mc := range all {
		names = append(names, mc.Name)
	}
	if got := strings.Join(names, " "); err != nil || len(report) > 0 || got != "a b d stdin" {
		t.Errorf("%s %v %s", got, err, report)
	}
}

// TestReadRefuses: what cannot be read is in the report with its cause, all of it at once, beside
// the problems of the files that can be read.
func TestReadRefuses(t *testing.T) {
	dir := tree(t, map[string]string{"large.yaml": "", "bad.yaml": "a: [", "some/gone.yaml": "", "some/bad.yaml": "a: ["})
	large, none := filepath.Join(dir, "large.yaml"), t.TempDir()
	if err := os.Truncate(large, document.MaxSize+1); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "some/gone.yaml")), os.Symlink("nowhere", filepath.Join(dir, "some/gone.yaml"))); err != nil {
		t.Fatal(err)
	}
	_, report, err := authored.Read(t.Context(), []string{"/nowhere", large, filepath.Join(dir, "bad.yaml"), none, "/dev/zero", filepath.Join(dir, "some")}, nil, rules())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"/nowhere: error: $: it cannot be read: no such file or directory",
		"large.yaml: error: $: it cannot be read: it has more than 8388608 bytes; give another FILE: no input of this command is so large",
		"bad.yaml:1", none + ": error: $: it cannot be read: the directory has no file .yaml, .yml or .json",
		"/dev/zero: error: $: it cannot be read: it is a device; give a FILE or a pipe",
		"gone.yaml: error: $: it cannot be read: no such file or directory", "bad.yaml:1",
	} {
		if i >= len(report) || !strings.Contains(report[i].String(), want) {
			t.Errorf("no %q at %d of\n%s", want, i, report)
		}
	}
	many := make([]string, 9)
	for i := range many {
		many[i] = large
	}
	if err := os.Truncate(large, document.MaxSize); err != nil {
		t.Fatal(err)
	}
	if _, _, err := authored.Read(t.Context(), many, nil, rules()); fault.KindOf(err) != fault.BadInput {
		t.Errorf("%d files of %d bytes: %v", len(many), document.MaxSize, err)
	}
}

// inline returns MachineConfigs unchanged.
func inline(_ context.Context, all []*authored.MachineConfig) ([]*authored.MachineConfig, problem.Report, error) {
	return all, nil, nil
}

func read(t *testing.T, objects ...string) []*authored.MachineConfig {
	t.Helper()
	all, report, err := authored.Read(t.Context(), []string{input.Stdin}, strings.NewReader(strings.Join(objects, "\n")), rules())
	if err != nil || report.Failed() {
		t.Fatal(err, report)
	}
	return all
}

func TestMergeAll(t *testing.T) {
	r := authored.Renderer{Rules: rules(), Inline: inline}
	all := read(t, object("worker", "w", `{"kernelArguments":["w"]}`), object("infra", "i", `{"kernelArguments":["i"]}`), object("master", "m", `{}`))
	merged, report, err := r.MergeAll(context.Background(), all)
	if err != nil || len(report) > 0 || len(merged) != 3 {
		t.Fatal(err, report, merged)
	}
	if got := strings.Join(merged["infra"].Spec.KernelArguments, " "); got != "w i" || !strings.HasPrefix(merged["infra"].Name, "rendered-infra-") {
		t.Errorf("%s: %s", merged["infra"].Name, got)
	}
	merged, report, err = r.MergeAll(context.Background(), append(all, read(t, object("infra", "j", `{"kernelArguments":["fips=1"]}`))...))
	if err != nil || merged != nil || !strings.HasPrefix(report.String(), "merged for role infra: error: $.spec.kernelArguments[2]: fips=") {
		t.Error(err, report, merged)
	}
	if _, _, err := r.MergeAll(context.Background(), nil); fault.KindOf(err) != fault.BadInput {
		t.Error(err)
	}
}

// A merged MachineConfig that still refers to remote resources is refused.
func TestMergeIsWhole(t *testing.T) {
	r := authored.Renderer{Rules: rules(), Inline: inline}
	all := read(t, object("worker", "w", `{"config":{"ignition":{"version":"3.4.0","config":{"merge":[{"source":"https://x/y"}]}},
"storage":{"files":[{"path":"/etc/a","contents":{"source":"https://x/z"}}]}}}`))
	merged, report, err := r.Merge(context.Background(), all, "worker")
	if err != nil || merged != nil || strings.Count(report.String(), "it would be fetched when the machine boots") != 2 {
		t.Error(err, report)
	}
	if report, err := authored.CheckRoles(all, rules()); err != nil || len(report) > 0 {
		t.Error(err, report)
	}
}
