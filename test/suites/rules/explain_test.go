package rules

import (
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestExplain: "kubectl explain" says something of each field of our schemas; each kind is shown by "kubectl get pivot", has a
// short name, and its age is shown.
func TestExplain(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "deploy/base/crds/*.yaml"))
	if err != nil || len(files) != 6 {
		t.Fatalf("%q: %v", files, err)
	}
	for _, file := range files {
		var crd struct {
			Spec struct {
				Names struct {
					ShortNames []string `yaml:"shortNames"`
					Categories []string
				}
				Versions []struct {
					Columns []struct{ Name string } `yaml:"additionalPrinterColumns"`
					Schema  struct {
						Top schemaField `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		name := "deploy/base/crds/" + filepath.Base(file)
		if err := yaml.Unmarshal([]byte(readText(t, name)), &crd); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		columns := crd.Spec.Versions[0].Columns
		if n := crd.Spec.Names; len(n.ShortNames) == 0 || len(n.Categories) != 1 || n.Categories[0] != "pivot" || columns[len(columns)-1].Name != "Age" {
			t.Errorf("%s: %+v, %+v", name, n, columns)
		}
		crd.Spec.Versions[0].Schema.Top.explained(t, name, true)
	}
}

// schemaField is a field of a schema.
type schemaField struct {
	Description string
	Properties  map[string]schemaField
	Items       *schemaField
}

// explained requires a description of a field and of those in it. What Kubernetes defines is described there.
func (f schemaField) explained(t *testing.T, path string, top bool) {
	t.Helper()
	if f.Description == "" {
		t.Errorf("%s has no description", path)
	}
	for name, field := range f.Properties {
		if top && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue
		}
		field.explained(t, path+"."+name, false)
	}
	if f.Items != nil {
		for name, field := range f.Items.Properties {
			field.explained(t, path+"[]."+name, false)
		}
	}
}
