package rules

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
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
			"pivot_pool_updated_nodes" + controller: "1+0x1000 _x1100", "pivot_pool_held" + controller: "1+0x1000 _x1100", "pivot_pool_paused" + controller: "1+0x1000 _x1100", "pivot_pool_nodes" + controller: "4+0x1000 _x1100",
			"pivot_pool_updated_nodes" + successor: "_x1001 1+0x1100", "pivot_pool_held" + successor: "_x1001 1+0x1100", "pivot_pool_paused" + successor: "_x1001 1+0x1100", "pivot_pool_nodes" + successor: "_x1001 4+0x1100",
			"pivot_agent_last_proof_timestamp_seconds" + agent: "0+300x2100"}, "7d1h", "PivotPoolPausedLong"},
		"paused, and all nodes have it": {series{"pivot_pool_held" + controller: "1" + always, "pivot_pool_paused" + controller: "1" + always,
			"pivot_agent_last_proof_timestamp_seconds" + agent: "0+300x2100"}, "7d1h", ""},
	} {
		all := healthy().with(c.series)
		all.documented(t)
		fired[c.fires] = true
		var want []any
		if c.fires != "" {
			want = append(want, map[string]any{"labels": `{alertname="` + c.fires + `"}`, "value": 1})
		}
		interval := "1m"
		if strings.HasPrefix(c.at, "7d") { // few values are fast
			interval = "5m"
		}
		tests = append(tests, promtoolTest(name, interval, all, map[string]any{"expr": `count by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": c.at, "exp_samples": want}))
	}
	promtool(t, tests)
	for _, r := range alerts(t) {
		if !fired[r.Alert] {
			t.Errorf("nothing shows that %s fires", r.Alert)
		}
	}
}
