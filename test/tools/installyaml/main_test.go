package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"

	"machine-pivot/test/worlds/controlplane"
)

const root = "../../.."

var (
	agentImage = "registry.example/pivot-agent@sha256:" + strings.Repeat("a", 64)
	fleetImage = "registry.example/pivot-fleet@sha256:" + strings.Repeat("b", 64)
)

func install(t *testing.T) string {
	t.Helper()
	o := options{agent: agentImage, fleet: fleetImage, version: "1.4.0~rc.1+7.g1a2b3c4", out: t.TempDir(), source: root}
	if err := write(filepath.Join(o.out, "chart/templates/old.yaml"), "kind: ClusterRole\nmetadata: {name: of-another-version}\n"); err != nil {
		t.Fatal(err)
	}
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	return o.out
}

// TestInstall: a real API server accepts install.yaml, and then each optional file. install.yaml has all that is in the
// kustomizations but what is optional, and names images by digest.
func TestInstall(t *testing.T) {
	made := install(t)
	plane := controlplane.Start(t)
	for _, file := range []string{"install.yaml", "webhooks.yaml", "server.yaml"} {
		plane.ApplyFile(filepath.Join(made, file))
	}
	has := objects(t, readFile(t, filepath.Join(made, "install.yaml")))
	whole := map[string]map[string]any{}
	for _, dir := range []string{"base", "host", "pod", "fleet"} {
		files, err := (options{source: root}).filesOf(part{dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			maps.Copy(whole, objects(t, readFile(t, filepath.Join(root, "deploy", dir, file))))
		}
	}
	optional := objects(t, readFile(t, filepath.Join(made, "webhooks.yaml"))+"---\n"+readFile(t, filepath.Join(made, "server.yaml")))
	for name := range whole {
		if _, there := has[name]; there == (optional[name] != nil) {
			t.Errorf("%s: in install.yaml %v, optional %v", name, there, optional[name] != nil)
		}
	}
	if len(has)+len(optional) != len(whole) || len(optional) < 8 {
		t.Errorf("install.yaml has %d objects, the optional files %d, the kustomizations %d", len(has), len(optional), len(whole))
	}
	for _, name := range []string{"ValidatingAdmissionPolicyBinding/pivot-agent-state", "ValidatingAdmissionPolicyBinding/pivot-rollout-images", "ValidatingAdmissionPolicyBinding/pivot-workloads"} {
		if has[name] == nil {
			t.Errorf("%s is missing: policies are always on", name)
		}
	}
	for _, of := range []struct{ name, image string }{{"DaemonSet/pivot-agent", agentImage}, {"Deployment/pivot-fleet-controller", fleetImage}} {
		if text := fmt.Sprint(has[of.name]); !strings.Contains(text, "image:"+of.image+" ") {
			t.Errorf("%s does not run %s: %s", of.name, of.image, text)
		}
	}
}

// TestChart: the chart's templates give the same objects as the files. They use only what text/template has, so that is how
// they are rendered here.
func TestChart(t *testing.T) { charted(t, rendered) }

// TestHelm: Helm itself gives them, too.
func TestHelm(t *testing.T) {
	charted(t, func(t *testing.T, chart string, values map[string]any) string {
		t.Helper()
		args := []string{"run", "helm.sh/helm/v3/cmd/helm@v3.22.0", "template", "--kube-version", "1.32.0", "pivot", chart}
		for name, value := range values {
			args = append(args, "--set", fmt.Sprintf("%s=%v", name, value))
		}
		out, err := exec.Command("go", args...).Output()
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("%v: %s", err, failed.Stderr)
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	})
}

// charted checks the objects of the chart, which a function renders with values.
func charted(t *testing.T, render func(t *testing.T, chart string, values map[string]any) string) {
	t.Helper()
	dir := install(t)
	var chart struct{ Version string }
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(dir, "chart/Chart.yaml"))), &chart); err != nil || chart.Version != "1.4.0-rc.1+7.g1a2b3c4" {
		t.Errorf("%q, %v", chart.Version, err)
	}
	text := func(files ...string) (all string) {
		for _, file := range files {
			all += "---\n" + readFile(t, file)
		}
		return all
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, of := range []struct {
		values map[string]any
		want   string
	}{
		{nil, text(file("install.yaml"))},
		{map[string]any{"webhooks": true, "server": true}, text(file("install.yaml"), file("webhooks.yaml"), file("server.yaml"))},
		{map[string]any{"agents": "units"}, ""},
	} {
		has, want := objects(t, render(t, filepath.Join(dir, "chart"), of.values)), objects(t, of.want)
		if of.want == "" {
			if has["DaemonSet/pivot-agent"] != nil || has["ClusterRoleBinding/pivot-agent-node"] == nil {
				t.Errorf("%v gives %v", of.values, slices.Sorted(maps.Keys(has)))
			}
			continue
		}
		for name, o := range has {
			if strings.HasPrefix(name, "CustomResourceDefinition/") {
				metadata := o["metadata"].(map[string]any)
				if fmt.Sprint(metadata["annotations"]) != "map[helm.sh/resource-policy:keep]" {
					t.Errorf("%s would be deleted with the chart, and all objects of its kind: %v", name, metadata)
				}
				delete(metadata, "annotations")
			}
			if fmt.Sprint(o) != fmt.Sprint(want[name]) {
				t.Errorf("%s is %v, want %v", name, o, want[name])
			}
		}
		if len(has) != len(want) || len(has) < 30 {
			t.Errorf("%v: %d objects, want %d", of.values, len(has), len(want))
		}
	}
}

// rendered returns what a chart's templates give with its values, and some others.
func rendered(t *testing.T, chart string, others map[string]any) string {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(chart, "values.yaml"))), &values); err != nil {
		t.Fatal(err)
	}
	maps.Copy(values, others)
	var out bytes.Buffer
	err := fs.WalkDir(os.DirFS(filepath.Join(chart, "templates")), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		parsed, err := template.New(name).Option("missingkey=error").Parse(readFile(t, filepath.Join(chart, "templates", name)))
		if err != nil {
			return err
		}
		out.WriteString("---\n")
		return parsed.Execute(&out, map[string]any{"Values": values})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestImages: an image that could be another one tomorrow is refused, and nothing is written.
func TestImages(t *testing.T) {
	for _, image := range []string{"", "registry.example/pivot-agent", "registry.example/pivot-agent:1.4.0", "pivot-agent@sha256:" + strings.Repeat("a", 64), agentImage + "0"} {
		o := options{agent: image, fleet: fleetImage, version: "1", out: t.TempDir(), source: root}
		if err := o.run(); err == nil || !strings.Contains(err.Error(), "it is not HOST/NAME@sha256:DIGEST") {
			t.Errorf("%q: %v", image, err)
		}
		if left, err := os.ReadDir(o.out); err != nil || len(left) > 0 {
			t.Errorf("%q: %v, %v", image, left, err)
		}
	}
}

// objects returns the objects in a text, by kind and name.
func objects(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o map[string]any
		switch err := d.Decode(&o); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		case o == nil:
			continue
		}
		metadata := o["metadata"].(map[string]any)
		name := fmt.Sprintf("%s/%s", o["kind"], metadata["name"])
		if namespace := metadata["namespace"]; namespace != nil && (o["kind"] == "Role" || o["kind"] == "RoleBinding") {
			name += fmt.Sprintf(" in %s", namespace)
		}
		if all[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		all[name] = o
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
