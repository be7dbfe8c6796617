package pods

import (
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// AllowedAnnotation lists the workload types that pods of a namespace may choose.
const AllowedAnnotation = "workload.openshift.io/allowed"

// Namespaces reads manifests of namespaces, one or several documents or lists in YAML or JSON, and returns
// the value of AllowedAnnotation for each namespace that has it.
func Namespaces(file string, manifests []byte) (map[string]string, problem.Report) {
	allowed := map[string]string{}
	report := document.Read(file, manifests, func(root document.Node) {
		for _, n := range root.Objects() {
			namespace(n, allowed)
		}
	})
	return allowed, report
}

// namespace adds what a namespace allows.
func namespace(n document.Node, allowed map[string]string) {
	if kind := n.Get("kind"); !kind.Is("Namespace") {
		kind.Fail("it is %s, not Namespace", problem.Quoted(kind.Text()))
		return
	}
	metadata := n.Get("metadata")
	metadata.Object()
	name := metadata.Get("name")
	if name.Text() == "" {
		name.Fail("it is missing")
	}
	if types, ok := metadata.Get("annotations").Texts()[AllowedAnnotation]; ok {
		allowed[name.Text()] = types
	}
}
