package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Deploy creates or replaces what a directory of deploy/ has, after deploy/base, with its patches (RFC 6902, in files), and
// waits until the new kinds are served.
func (c *ControlPlane) Deploy(dir string) {
	c.t.Helper()
	if base := filepath.Join(filepath.Dir(dir), "base"); dir != base {
		c.deploy(base)
	}
	c.deploy(dir)
}

func (c *ControlPlane) deploy(dir string) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	var k struct {
		Resources []string
		Patches   []patch
	}
	if err := yaml.Unmarshal(text, &k); err != nil || len(k.Resources) == 0 {
		c.t.Fatalf("%s has the resources %q: %v", dir, k.Resources, err)
	}
	for _, resource := range k.Resources {
		if path := filepath.Join(dir, resource); filepath.Ext(path) == ".yaml" {
			c.ApplyFile(path)
		} else {
			c.deploy(path)
		}
	}
	for _, p := range k.Patches {
		c.patch(dir, p)
	}
}

// patch is a patch of a kustomization.
type patch struct {
	Path   string
	Target struct{ Version, Group, Kind, Namespace, Name string }
}

// patch changes an object that was deployed.
func (c *ControlPlane) patch(dir string, p patch) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, p.Path))
	if err == nil {
		text, err = yaml.ToJSON(text)
	}
	if err == nil {
		path := pathOf(strings.TrimPrefix(p.Target.Group+"/"+p.Target.Version, "/"), p.Target.Namespace, p.Target.Kind, p.Target.Name)
		err = c.Client(c.Admin()).CoreV1().RESTClient().Patch(types.JSONPatchType).AbsPath(path).Param("fieldValidation", "Strict").Body(text).Do(c.t.Context()).Error()
	}
	if err != nil {
		c.t.Fatalf("%s: %v", filepath.Join(dir, p.Path), err)
	}
}

// ApplyFile creates or replaces the objects in a file of YAML.
func (c *ControlPlane) ApplyFile(file string) {
	c.t.Helper()
	f, err := os.Open(file)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	for d := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var o map[string]any
		switch err := d.Decode(&o); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			c.t.Fatalf("%s: %v", file, err)
		}
		c.Apply(o)
	}
}

// Apply creates or replaces an object. One of a new kind is served a little later.
func (c *ControlPlane) Apply(o map[string]any) {
	c.t.Helper()
	body, err := json.Marshal(o)
	if err != nil {
		c.t.Fatal(err)
	}
	metadata := o["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	path := pathOf(fmt.Sprint(o["apiVersion"]), namespace, fmt.Sprint(o["kind"]), fmt.Sprint(metadata["name"]))
	client := c.Client(c.Admin()).CoreV1().RESTClient()
	err = errors.New("not tried")
	Eventually(c.t, path, func(ctx context.Context) bool {
		err = client.Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", "test").Param("fieldValidation", "Strict").Body(body).Do(ctx).Error()
		return !apierrors.IsNotFound(err)
	})
	if err != nil {
		c.t.Fatalf("%s: %v", path, err)
	}
}

// pathOf returns the path of an object in the API. version has the group, but for v1.
func pathOf(version, namespace, kind, name string) string {
	root := "/apis/" + version
	if version == "v1" {
		root = "/api/v1"
	}
	if namespace != "" {
		root += "/namespaces/" + namespace
	}
	return root + "/" + plural(kind) + "/" + name
}

// plural returns the name of a kind in paths of the API.
func plural(kind string) string {
	name := strings.ToLower(kind)
	if before, ok := strings.CutSuffix(name, "y"); ok {
		return before + "ies"
	}
	return name + "s"
}
