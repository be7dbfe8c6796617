// Package metrics compares the metrics that a program exposes with those that a page of the documents lists. Alert
// rules and dashboards are then checked against the page.
package metrics

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metric is a row of the page's table.
type Metric struct {
	Program string   // agent, controller or server
	Labels  []string // sorted
}

var row = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (agent|controller|server|all three) \\|([^|]*)\\|")

// Documented returns the metrics in the table of a page, by name. A row has the name, the program and the labels.
func Documented(t testing.TB, page string) map[string]Metric {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Metric{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = Metric{Program: m[2], Labels: slices.Sorted(slices.Values(strings.Fields(strings.NewReplacer("`", "", ",", " ").Replace(m[3]))))}
	}
	if len(found) < 10 {
		t.Fatalf("%s lists only %d metrics", page, len(found))
	}
	return found
}

// Check compares what a program exposes, in Prometheus's text format, with the page: each metric that begins with
// pivot_ is listed with its labels, and each listed one exposed.
func Check(t testing.TB, page, program, exposition string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(exposition))
	if err != nil {
		t.Fatal(err)
	}
	documented := Documented(t, page)
	maps.DeleteFunc(documented, func(_ string, m Metric) bool { return m.Program != program && m.Program != "all three" })
	for name, family := range families {
		want, ok := documented[name]
		if !ok {
			if strings.HasPrefix(name, "pivot_") {
				t.Errorf("%s does not list %s of the %s", page, name, program)
			}
			continue
		}
		delete(documented, name)
		var labels []string
		for _, l := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if slices.Sort(labels); !slices.Equal(labels, want.Labels) {
			t.Errorf("%s lists %s with the labels %q, the %s has %q", page, name, want.Labels, program, labels)
		}
	}
	for name, m := range documented {
		if m.Program != program {
			continue // the process exposes it, and not each handler
		}
		t.Errorf("%s lists %s, which the %s does not expose", page, name, program)
	}
}
