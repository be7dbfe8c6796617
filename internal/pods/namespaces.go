package pods

import (
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// AllowedAnnotation lists the workload types that pods of a namespace may choose.
const AllowedAnnotation = "workload.openshift.io/allowed"

// Namespaces reads manifests of namespaces, one or several documents in YAML or JSON, and returns
// the value of AllowedAnnotation for each namespace that has it.
func Namespaces(file string, manifests []byte) (map[string]string, problem.Report) {
	allowed := map[string]string{}
	report := document.Read(file, manifests, func(root document.Node) {
		if !root.Object() {
			return
		}
		if kind := root.Get("kind"); !kind.Is("Namespace") {
			kind.Fail("it is %s, not Namespace", problem.Quoted(kind.Text()))
			return
		}
		metadata := root.Get("metadata")
		metadata.Object()
		name := metadata.Get("name")
		if name.Text() == "" {
			name.Fail("it is missing")
		}
		if types, ok := metadata.Get("annotations").Texts()[AllowedAnnotation]; ok {
			allowed[name.Text()] = types
		}
	})
	return allowed, report
}
