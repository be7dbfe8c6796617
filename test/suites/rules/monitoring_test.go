package rules

import (
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

// series are the values of series, in promtool's notation: "1+0x60" is 1 for an hour. Time begins at 0, with a
// value each minute, or each five minutes if it takes days.
type series map[string]string

const (
	agent      = `{instance="n1",job="agents"}`
	controller = `{instance="c1",job="fleet",pool="worker"}`
	successor  = `{instance="c2",job="fleet",pool="worker"}`
	leader     = `leader_election_master_status{instance="c1",job="fleet",name="pivot-fleet-controller"}`
	done       = `pivot_agent_node_state{instance="n1",job="agents",state="Done"}`
	working    = `pivot_agent_node_state{instance="n1",job="agents",state="Working"}`
	always     = "+0x2100" // 35 hours
)

// healthy are the series of a fleet of which all nodes have what they should have.
func healthy() series {
	return series{
		done: "1" + always, working: "0" + always, "pivot_agent_failing" + agent: "0" + always, "pivot_agent_config_drift" + agent: "0" + always,
		"pivot_agent_cordoned" + agent: "0" + always, "pivot_agent_failures_total" + agent: "3" + always, "pivot_agent_unreachable_total" + agent: "7" + always,
		"pivot_agent_workloads_unknown" + agent:            "0" + always,
		"pivot_agent_last_proof_timestamp_seconds" + agent: "0+60x2100",
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

func promtoolTest(name, interval string, s series, expressions ...any) map[string]any {
	var input []any
	for _, text := range slices.Sorted(maps.Keys(s)) {
		input = append(input, map[string]any{"series": text, "values": s[text]})
	}
	return map[string]any{"name": name, "interval": interval, "input_series": input, "promql_expr_test": expressions}
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
	for _, file := range []string{"deploy/pod-metrics/metrics.yaml", "deploy/host/metrics.conf", "deploy/monitoring/scrape.yaml"} {
		if !strings.Contains(readText(t, file), ":8796") {
			t.Errorf("%s has another port of the agents", file)
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
