package rules

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// knownMetrics returns the metrics that the code has.
func knownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, path := range matches(t, "internal/cluster/*/*.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`"(pivot_[a-z_]+)[{"]`).FindAllStringSubmatch(readText(t, path), -1) {
			known[m[1]] = true
		}
	}
	if len(known) < 5 {
		t.Fatalf("only the metrics %v", known)
	}
	return known
}

// The words of the query language that the rules and the dashboard use.
var queryWords = []string{"sum", "by", "topk", "time", "increase", "changes", "absent", "and", "or", "unless"}

var (
	queryTexts  = regexp.MustCompile(`"[^"]*"`)
	queryLabels = regexp.MustCompile(`\{[^{}]*\}|\bby \([a-z_, ]*\)`)
	queryRange  = regexp.MustCompile(`\[[0-9]+[smhd]\]`)
	queryName   = regexp.MustCompile(`[A-Za-z_:][A-Za-z0-9_:]*`)
	queryRest   = regexp.MustCompile(`^(?:[0-9.]+|[-+*/()<>=! ,])*$`)
)

// wrongQuery returns what is wrong with a query. It knows only what is used here: metrics with matchers of
// labels, ranges, functions, numbers and operators.
func wrongQuery(query string, metrics map[string]bool) string {
	rest := queryRange.ReplaceAllString(queryLabels.ReplaceAllString(queryTexts.ReplaceAllString(query, ""), ""), "")
	found := false
	for _, name := range queryName.FindAllString(rest, -1) {
		switch {
		case metrics[name]:
			found = true
		case !slices.Contains(queryWords, name):
			return "there is no metric or function " + name
		}
	}
	rest = queryName.ReplaceAllString(rest, "")
	depth := 0
	for _, r := range rest {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth < 0 {
			return "a parenthesis is closed too early"
		}
	}
	switch {
	case depth != 0:
		return "a parenthesis is not closed"
	case !queryRest.MatchString(rest):
		return "what remains of it is " + rest
	case !found:
		return "it has no metric"
	}
	return ""
}

func TestWrongQuery(t *testing.T) {
	metrics := map[string]bool{"m": true}
	for query, ok := range map[string]bool{
		`m == 1`: true, `sum by (a) (increase(m{a="x y"}[1h])) > 0`: true, `time() - m > 7200`: true, `absent(m)`: true,
		`n == 1`: false, `sum(m`: false, `m)(`: false, `m[1h`: false, `rate(m[5m])`: false, `1 > 0`: false, `m{a="x"`: false,
	} {
		if why := wrongQuery(query, metrics); (why == "") != ok {
			t.Errorf("%s: %q", query, why)
		}
	}
}

// TestAlerts: each rule asks for metrics that exist, says who is meant and what to do, and is explained.
func TestAlerts(t *testing.T) {
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	d := yaml.NewDecoder(strings.NewReader(readText(t, "deploy/monitoring/alerts.yaml")))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	metrics, page, names := knownMetrics(t), readText(t, "docs/cluster-view.md"), []string{}
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			names = append(names, r.Alert)
			if why := wrongQuery(r.Expr, metrics); why != "" {
				t.Errorf("%s: %s: %s", r.Alert, r.Expr, why)
			}
			if _, err := time.ParseDuration(strings.Replace(r.For, "7d", "168h", 1)); err != nil {
				t.Errorf("%s: for: %v", r.Alert, err)
			}
			if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: labels %v, annotations %v", r.Alert, r.Labels, r.Annotations)
			}
			if !strings.Contains(page, "| `"+r.Alert+"` |") {
				t.Errorf("docs/cluster-view.md does not say what to do about %s", r.Alert)
			}
		}
	}
	slices.Sort(names)
	if len(names) < 8 || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("the alerts %q", names)
	}
}

// TestDashboard: the dashboard has the structure that Grafana loads, its panels do not overlap, and its queries ask
// for metrics that exist.
func TestDashboard(t *testing.T) {
	var board struct {
		UID, Title    string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []struct {
			ID                       int
			Title, Type, Description string
			GridPos                  struct{ X, Y, W, H int }
			Targets                  []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readText(t, filepath.Join("deploy", "monitoring", "dashboard.json"))), &board); err != nil {
		t.Fatal(err)
	}
	if board.UID == "" || board.Title == "" || board.SchemaVersion < 36 || len(board.Panels) < 8 {
		t.Errorf("%+v", board)
	}
	metrics := knownMetrics(t)
	for _, v := range board.Templating.List {
		if m := regexp.MustCompile(`^label_values\((\w+), \w+\)$`).FindStringSubmatch(v.Query); v.Type == "query" && (m == nil || !metrics[m[1]]) {
			t.Errorf("the variable %s: %s", v.Name, v.Query)
		}
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.Description == "" || !slices.Contains([]string{"stat", "timeseries", "table"}, p.Type) || len(p.Targets) == 0 {
			t.Errorf("the panel %+v", p)
		}
		ids[p.ID] = true
		if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W*p.GridPos.H == 0 {
			t.Errorf("%s is at %+v", p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, taken := cells[[2]int{x, y}]; taken {
					t.Fatalf("%s is in the place of %s", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			if why := wrongQuery(target.Expr, metrics); why != "" {
				t.Errorf("%s: %s: %s", p.Title, target.Expr, why)
			}
		}
	}
}
