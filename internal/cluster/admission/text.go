package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/problem"
)

// Limits of what the API server gives to a user: each warning is cut off at 256 bytes there, and all of them
// after 4096.
const (
	maxProblems = 20
	maxText     = 250 // of one problem or warning, in bytes
	maxNames    = 5
)

// message returns the errors of a report, one a line.
func message(report problem.Report) string { return strings.Join(texts(report.Errors()), "\n") }

// warnings returns the warnings of a report.
func warnings(report problem.Report) []string {
	var chosen problem.Report
	for _, p := range report {
		if p.Severity == problem.Warning {
			chosen.Add(p)
		}
	}
	return texts(chosen)
}

// texts returns the texts of problems, with their number if there are too many.
func texts(report problem.Report) (all []string) {
	for i, p := range report {
		if i == maxProblems {
			return append(all, fmt.Sprintf("and %d more", len(report)-maxProblems))
		}
		all = append(all, cut(p.Path+": "+p.Message))
	}
	return all
}

// cut limits a text, and keeps its last character whole.
func cut(text string) string {
	text = problem.OneLine(text)
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// shortList returns the first of some names.
func shortList(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

func isRendered(name string) bool { return strings.HasPrefix(name, api.RenderedPrefix) }

// named returns an object with a name. The API server chooses the name of one that has only the beginning of a name,
// after its admission.
func named(object []byte, meta metav1.ObjectMeta) []byte {
	if meta.Name != "" || meta.GenerateName == "" {
		return object
	}
	name, err := json.Marshal(meta.GenerateName + "00000")
	if err != nil {
		return object
	}
	return bytes.Replace(object, []byte(`"metadata":{`), append(append([]byte(`"metadata":{"name":`), name...), ','), 1)
}
