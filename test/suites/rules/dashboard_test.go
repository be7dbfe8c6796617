package rules

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/tools/metrics"
	"machine-pivot/test/tools/need"
)

// dashboard is what is looked at of the dashboard. TestDashboardTypes checks the rest.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID                 int
		Title, Description string
		GridPos            struct{ X, Y, W, H int }
		Targets            []struct{ RefID, Expr string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(readText(t, board)), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 8 {
		t.Fatalf("%s has %d panels", board, len(d.Panels))
	}
	return d
}

// TestDashboard: the panels say what they show, and do not overlap; variables have values of metrics that exist.
func TestDashboard(t *testing.T) {
	d, known := readDashboard(t), metrics.Documented(t, fromRoot(fleetPage))
	for _, v := range d.Templating.List {
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query)
		if v.Type == "query" && (m == nil || !slices.Contains(known[m[1]].Labels, m[2])) {
			t.Errorf("the variable %s: %s", v.Name, v.Query)
		}
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
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
	}
}

// TestDashboardQueries: each query has a result on the series of a fleet in which something is wrong.
func TestDashboardQueries(t *testing.T) {
	s := healthy().with(series{"pivot_agent_failing" + agent: "1" + always})
	s.documented(t)
	var queries []any
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			query := "count(" + strings.ReplaceAll(target.Expr, "$pool", ".*") + ") > bool 0"
			queries = append(queries, map[string]any{"expr": query, "eval_time": "2h", "exp_samples": []any{map[string]any{"labels": "{}", "value": 1}}})
		}
	}
	promtool(t, []any{promtoolTest("dashboard", "1m", s, queries...)})
}

// TestDashboardTypes: the dashboard has the members that Grafana's published types have, and no others.
func TestDashboardTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles Grafana's types, half a minute the first time")
	}
	path, err := filepath.Abs(fromRoot(board))
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = fromRoot("test/grafana")
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
		return cmd.CombinedOutput()
	}
	if out, err := run("list", "-deps", "."); err != nil {
		need.Lacking(t, "needs Grafana's types of dashboards: "+string(out))
	}
	if out, err := run("run", ".", path); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.json")
	text := strings.Replace(readText(t, board), `"legendFormat"`, `"legend"`, 1)
	if err := os.WriteFile(wrong, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run("run", ".", wrong); err == nil || !strings.Contains(string(out), "'legend'") {
		t.Errorf("a wrong member: %v\n%s", err, out)
	}
}
