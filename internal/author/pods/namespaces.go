package pods

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// AllowedAnnotation lists the workload types that pods of a namespace may choose.
const AllowedAnnotation = "workload.openshift.io/allowed"

// Namespaces reads the manifests of namespaces, one or several documents, and
// returns what each that has AllowedAnnotation allows.
func Namespaces(manifests []byte) (map[string]string, error) {
	allowed := map[string]string{}
	decoder := yaml.NewDecoder(bytes.NewReader(manifests))
	for {
		var n struct {
			Kind     string
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
		}
		err := decoder.Decode(&n)
		if errors.Is(err, io.EOF) {
			return allowed, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot parse namespaces: %w", err)
		}
		if n.Kind != "Namespace" || n.Metadata.Name == "" {
			return nil, fmt.Errorf("cannot use %q %q as a namespace", n.Kind, n.Metadata.Name)
		}
		if types, ok := n.Metadata.Annotations[AllowedAnnotation]; ok {
			allowed[n.Metadata.Name] = types
		}
	}
}
