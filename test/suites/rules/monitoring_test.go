package rules

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"machine-pivot/test/tools/metrics"
	"machine-pivot/test/tools/need"
)

const (
	alertRules = "deploy/monitoring/alerts.yaml"
	board      = "deploy/monitoring/dashboard.json"
	fleetPage  = "docs/cluster-view.md" // lists the metrics, which the tests of the programs compare with what these expose
)

// alert is a rule.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alerts returns the alert rules.
func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	d := yaml.NewDecoder(strings.NewReader(readText(t, alertRules)))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// TestAlerts: each rule says who is meant and what to do, and is explained.
func TestAlerts(t *testing.T) {
	page, names := readText(t, fleetPage), []string{}
	for _, r := range alerts(t) {
		names = append(names, r.Alert)
		if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: labels %v, annotations %v", r.Alert, r.Labels, r.Annotations)
		}
		if !strings.Contains(page, "| `"+r.Alert+"` |") {
			t.Errorf("%s does not say what to do about %s", fleetPage, r.Alert)
		}
	}
	slices.Sort(names)
	if len(names) < 8 || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("the alerts %q", names)
	}
}

// series are the values of series, in promtool's notation: "1+0x60" is 1 for an hour. Time begins at 0, with a value
// each minute.
type series map[string]string

const (
	agent      = `{instance="n1",job="agents"}`
	controller = `{instance="c1",job="fleet",pool="worker"}`
	successor  = `{instance="c2",job="fleet",pool="worker"}`
	leader     = `leader_election_master_status{instance="c1",job="fleet",name="pivot-fleet-controller"}`
	done       = `pivot_agent_node_state{instance="n1",job="agents",state="Done"}`
	working    = `pivot_agent_node_state{instance="n1",job="agents",state="Working"}`
	always     = "+0x1600" // longer than a day
)

// healthy are the series of a fleet of which all nodes have what they should have.
func healthy() series {
	return series{
		done: "1" + always, working: "0" + always, "pivot_agent_failing" + agent: "0" + always, "pivot_agent_config_drift" + agent: "0" + always,
		"pivot_agent_cordoned" + agent: "0" + always, "pivot_agent_failures_total" + agent: "3" + always, "pivot_agent_unreachable_total" + agent: "7" + always,
		"pivot_agent_workloads_unknown" + agent:            "0" + always,
		"pivot_agent_last_proof_timestamp_seconds" + agent: "0+60x1600",
		"pivot_pool_nodes" + controller:                    "4" + always, "pivot_pool_updated_nodes" + controller: "4" + always, "pivot_pool_unavailable_nodes" + controller: "0" + always,
		"pivot_pool_degraded_nodes" + controller: "0" + always, "pivot_pool_paused" + controller: "0" + always, "pivot_pool_held" + controller: "0" + always,
		"pivot_render_degraded" + controller: "0" + always, leader: "1" + always,
	}
}

// with returns these series with others in their place; those with no values are not there.
func (s series) with(others series) series {
	out := maps.Clone(s)
	maps.Copy(out, others)
	maps.DeleteFunc(out, func(_, values string) bool { return values == "" })
	return out
}

// names are the metrics in a text: ours, and the one of others that the rules use.
var names = regexp.MustCompile(`\b(?:pivot|leader)_[a-z_]+\b`)

// documented checks that series have the metrics and the labels that the programs expose, besides those of
// Prometheus itself.
func (s series) documented(t *testing.T) {
	t.Helper()
	known := metrics.Documented(t, fromRoot(fleetPage))
	for text := range s {
		name, labels, _ := strings.Cut(text, "{")
		var has []string
		for _, l := range regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(labels, -1) {
			if l[1] != "instance" && l[1] != "job" {
				has = append(has, l[1])
			}
		}
		if m, ok := known[name]; !ok || !slices.Equal(has, m.Labels) {
			t.Errorf("%s: the programs have %v", text, m)
		}
	}
}

// TestAlertsFire: Prometheus' own rule engine fires each alert on the series of such a fleet, and no other one.
func TestAlertsFire(t *testing.T) {
	fired := map[string]bool{}
	var tests []any
	for name, c := range map[string]struct {
		series
		at    string // when it is looked at
		fires string
	}{
		"healthy":                     {nil, "1d", ""},
		"another replica takes over":  {series{leader: "1x10 _x1000", strings.Replace(leader, "c1", "c2", 1): "_x10 1+0x100"}, "1h", ""},
		"no replica acts":             {series{leader: "0" + always}, "20m", "PivotControllerMissing"},
		"no replica answers":          {series{leader: ""}, "20m", "PivotControllerMissing"},
		"failed":                      {series{"pivot_agent_failing" + agent: "1" + always}, "11m", "PivotNodeFailed"},
		"failed for a moment":         {series{"pivot_agent_failing" + agent: "1+0x5 0+0x600"}, "11m", ""},
		"drifted":                     {series{"pivot_agent_failing" + agent: "1" + always, "pivot_agent_config_drift" + agent: "1" + always}, "16m", "PivotNodeDrifted"},
		"a long drain":                {series{"pivot_agent_cordoned" + agent: "1" + always, done: "0" + always, working: "1" + always, "pivot_agent_last_proof_timestamp_seconds" + agent: "0" + always}, "125m", "PivotNodeCordonedLong"},
		"no proof any more":           {series{"pivot_agent_last_proof_timestamp_seconds" + agent: "600" + always}, "135m", "PivotNodeNotProven"},
		"no proof since it runs":      {series{"pivot_agent_last_proof_timestamp_seconds" + agent: ""}, "65m", "PivotNodeNotProven"},
		"a proof every ten minutes":   {series{"pivot_agent_last_proof_timestamp_seconds" + agent: "0+0x9 600+0x9 1200+0x9 1800+0x9 2400+0x9 3000+0x9"}, "59m", ""},
		"cut off":                     {series{"pivot_agent_unreachable_total" + agent: "0+1x1000"}, "30m", "PivotAgentCutOff"},
		"the API server restarts":     {series{"pivot_agent_unreachable_total" + agent: "0+3x2 6+0x1000"}, "20m", ""},
		"workload types are unknown":  {series{"pivot_agent_workloads_unknown" + agent: "1" + always}, "16m", "PivotWorkloadsUnknown"},
		"cannot be merged":            {series{"pivot_render_degraded" + controller: "1" + always}, "6m", "PivotRenderFailed"},
		"stopped":                     {series{"pivot_pool_degraded_nodes" + controller: "1" + always, "pivot_pool_updated_nodes" + controller: "2" + always}, "1d", "PivotRolloutStopped"},
		"a node in 20 minutes":        {series{"pivot_pool_updated_nodes" + controller: "0+0x19 1+0x19 2+0x19 3+0x19 4+0x1000"}, "3h", ""},
		"a rollout after a quiet day": {series{"pivot_pool_updated_nodes" + controller: "4+0x1440 0+0x60"}, "1500m", ""},
		"slow":                        {series{"pivot_pool_updated_nodes" + controller: "1" + always}, "3h", "PivotRolloutSlow"},
		"waits for its window":        {series{"pivot_pool_updated_nodes" + controller: "1" + always, "pivot_pool_held" + controller: "1" + always}, "1d", ""},
		"paused for a day":            {series{"pivot_pool_updated_nodes" + controller: "1" + always, "pivot_pool_held" + controller: "1" + always, "pivot_pool_paused" + controller: "1" + always}, "1d", ""},
		"paused, with another replica since": {series{
			"pivot_pool_updated_nodes" + controller: "1+0x5000 _x7000", "pivot_pool_held" + controller: "1+0x5000 _x7000", "pivot_pool_paused" + controller: "1+0x5000 _x7000", "pivot_pool_nodes" + controller: "4+0x5000 _x7000",
			"pivot_pool_updated_nodes" + successor: "_x5005 1+0x7000", "pivot_pool_held" + successor: "_x5005 1+0x7000", "pivot_pool_paused" + successor: "_x5005 1+0x7000", "pivot_pool_nodes" + successor: "_x5005 4+0x7000", leader: "1+0x12000"},
			"7d1h", "PivotPoolPausedLong"},
		"paused, and all nodes have it": {series{"pivot_pool_held" + controller: "1+0x11000", "pivot_pool_paused" + controller: "1+0x11000",
			"pivot_pool_updated_nodes" + controller: "4+0x11000", "pivot_pool_nodes" + controller: "4+0x11000", leader: "1+0x11000"}, "7d1h", ""},
	} {
		all := healthy().with(c.series)
		all.documented(t)
		fired[c.fires] = true
		var want []any
		if c.fires != "" {
			want = append(want, map[string]any{"labels": `{alertname="` + c.fires + `"}`, "value": 1})
		}
		tests = append(tests, promtoolTest(name, all, map[string]any{"expr": `count by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": c.at, "exp_samples": want}))
	}
	promtool(t, tests)
	for _, r := range alerts(t) {
		if !fired[r.Alert] {
			t.Errorf("nothing shows that %s fires", r.Alert)
		}
	}
}

func promtoolTest(name string, s series, expressions ...any) map[string]any {
	var input []any
	for _, text := range slices.Sorted(maps.Keys(s)) {
		input = append(input, map[string]any{"series": text, "values": s[text]})
	}
	return map[string]any{"name": name, "interval": "1m", "input_series": input, "promql_expr_test": expressions}
}

// runPromtool runs promtool, which test/tools/deps.sh unpacks unless it is installed.
func runPromtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		program = filepath.Join(cache, "machine-pivot/prometheus/usr/bin/promtool")
		need.File(t, program)
	}
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestScrape: Prometheus accepts the configuration with which it finds the programs, at the ports that they have.
func TestScrape(t *testing.T) {
	discovery := regexp.MustCompile(`(?m)^  kubernetes_sd_configs:\n  - role: (?:pod|node)\n(?:    namespaces: \{names: \[[a-z, -]+\]\}\n)?`)
	text := readText(t, "deploy/monitoring/scrape.yaml")
	if n := len(discovery.FindAllString(text, -1)); n != 2 {
		t.Errorf("%d discoveries", n)
	}
	file := filepath.Join(t.TempDir(), "scrape.yaml") // Debian's Prometheus is built without that of Kubernetes
	if err := os.WriteFile(file, []byte(discovery.ReplaceAllString(text, "  static_configs: [{targets: [x]}]\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	runPromtool(t, "check", "config", "--syntax-only", file)
	for _, file := range []string{"controller", "server"} {
		if !strings.Contains(readText(t, "deploy/fleet/"+file+".yaml"), "{name: metrics, containerPort: 8799}") {
			t.Errorf("deploy/fleet/%s.yaml has no port of the name metrics", file)
		}
	}
}

// promtool runs tests of expressions with the alert rules.
func promtool(t *testing.T, tests []any) {
	t.Helper()
	rules, err := filepath.Abs(fromRoot(alertRules))
	if err != nil {
		t.Fatal(err)
	}
	runPromtool(t, "check", "rules", rules)
	file := filepath.Join(t.TempDir(), "tests.yaml")
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "5m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	runPromtool(t, "test", "rules", file)
}

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
	promtool(t, []any{promtoolTest("dashboard", s, queries...)})
}

// TestDashboardTypes: the dashboard has the members that Grafana's published types have, and no others.
func TestDashboardTypes(t *testing.T) {
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

// TestMonitoringNames: the rules and the queries ask for metrics that the programs expose.
func TestMonitoringNames(t *testing.T) {
	known, texts := metrics.Documented(t, fromRoot(fleetPage)), map[string]string{}
	for _, r := range alerts(t) {
		texts[r.Alert] = r.Expr
		if _, err := time.ParseDuration(strings.Replace(r.For, "7d", "168h", 1)); err != nil {
			t.Errorf("%s: for: %v", r.Alert, err)
		}
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			texts[p.Title+" "+target.RefID] = target.Expr
		}
	}
	for what, text := range texts {
		found := names.FindAllString(text, -1)
		if len(found) == 0 {
			t.Errorf("%s asks for no metric: %s", what, text)
		}
		for _, name := range found {
			if _, ok := known[name]; !ok {
				t.Errorf("%s: there is no metric %s", what, name)
			}
		}
	}
}
