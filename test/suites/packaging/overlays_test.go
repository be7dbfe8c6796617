package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"
)

// TestOverlays: the kustomize of the oldest kubectl that is supported builds each overlay, and each of its documents is an
// object. That kustomize is the old one: it still crashes as kubectl 1.32 does.
func TestOverlays(t *testing.T) {
	source := t.TempDir()
	archive, err := txtar.ParseFile("testdata/kustomize.txtar")
	if err == nil {
		err = txtar.Write(archive, source)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(source, "kustomize")
	inModule := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = source, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
		return cmd.CombinedOutput()
	}
	if out, err := inModule("list", "-deps", "."); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("cannot get the Go modules of kustomize: %v: %s", err, out)
	}
	if out, err := inModule("build", "-buildvcs=false", "-o", program, "."); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	build := func(dir string) (string, error) {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), program, dir)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Logf("%s: %v: %s", dir, err, stderr.String())
		}
		return string(out), err
	}
	overlays, err := filepath.Glob("../../../deploy/*/kustomization.yaml")
	if err != nil || len(overlays) < 7 {
		t.Fatalf("%q: %v", overlays, err)
	}
	for _, file := range overlays {
		text, err := build(filepath.Dir(file))
		if err != nil {
			t.Errorf("%s cannot be built", file)
		}
		for document := range strings.SplitSeq(text, "\n---\n") {
			var object struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil || object.Kind == "" || object.Metadata.Name == "" {
				t.Errorf("%s has a document that is no object: %v: %.200s", file, err, document)
			}
		}
	}
	crash := t.TempDir()
	for name, text := range map[string]string{
		"kustomization.yaml": "resources: [all.yaml]\npatches:\n- path: delete.yaml\n",
		"all.yaml":           "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
		"delete.yaml":        "$patch: delete\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n$patch: delete\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n",
	} {
		if err := os.WriteFile(filepath.Join(crash, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := build(crash); err == nil {
		t.Errorf("this kustomize builds what kubectl 1.32 cannot: %s", text)
	}
}
