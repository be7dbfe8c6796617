package view_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/view"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

func planner(t *testing.T, s server) view.Planner {
	t.Helper()
	return view.Planner{Client: s.client(t), Renderer: authored.Renderer{
		Rules: authored.Rules{KernelArguments: kargs.DefaultPolicy()},
		Inline: func(_ context.Context, all []*authored.MachineConfig) ([]*authored.MachineConfig, problem.Report, error) {
			return all, nil, nil
		},
	}}
}

// mc returns a MachineConfig as JSON.
func mc(name, role, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":%q,"labels":{"machineconfiguration.openshift.io/role":%q}},"spec":%s}`, name, role, spec)
}

func proposed(t *testing.T, texts ...string) (all []*authored.MachineConfig) {
	t.Helper()
	for i, text := range texts {
		found, report := authored.Decode(fmt.Sprintf("%d.json", i), []byte(text), authored.Rules{KernelArguments: kargs.DefaultPolicy()})
		if report.Failed() {
			t.Fatal(report)
		}
		all = append(all, found...)
	}
	return all
}

const image = `"osImageURL":"r.example/os@sha256:1111111111111111111111111111111111111111111111111111111111111111"`

// fleet is a cluster of two pools: two workers at one MachineConfig, one at another that is gone, and a master.
func fleet(t *testing.T) server {
	t.Helper()
	node := func(name, role, config, created string) any {
		return object(t, fmt.Sprintf(`{"metadata":{"name":%q,"creationTimestamp":%q,"labels":{"node-role.kubernetes.io/%s":""},"annotations":{"machineconfiguration.openshift.io/currentConfig":%q}},
			"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, name, created, role, config))
	}
	selected := func(role, config string) any {
		return object(t, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"configuration":{"name":%q},"nodeSelector":{"matchLabels":{"node-role.kubernetes.io/%s":""}},
			"machineConfigSelector":{"matchLabels":{"machineconfiguration.openshift.io/role":%q}},"maxUnavailable":2}}`, role, config, role, role))
	}
	return server{
		pools: []any{selected("worker", "rendered-worker-1"), selected("master", "rendered-master-1")},
		nodes: []any{
			node("young", "worker", "rendered-worker-1", "2026-03-01T00:00:00Z"), node("old", "worker", "rendered-worker-1", "2025-03-01T00:00:00Z"),
			node("lost", "worker", "rendered-worker-0", "2026-03-02T00:00:00Z"),
			node("m", "master", "rendered-master-1", "2025-01-01T00:00:00Z"),
		},
		configs: []any{
			object(t, mc("50-worker", "worker", `{"kernelArguments":["quiet"],"config":{"ignition":{"version":"3.4.0"}}}`)),
			object(t, mc("50-master", "master", `{"config":{"ignition":{"version":"3.4.0"}}}`)),
			object(t, mc("rendered-worker-1", "worker", `{`+image+`,"kernelArguments":["quiet"],"config":{"ignition":{"version":"3.4.0"}}}`)),
			object(t, mc("rendered-master-1", "master", `{`+image+`,"config":{"ignition":{"version":"3.4.0"}}}`)),
		},
	}
}

func planOf(t *testing.T, s server, all []*authored.MachineConfig, runtimes ...api.ContainerRuntimeConfig) view.Plan {
	t.Helper()
	p := planner(t, s)
	f, err := view.ObserveNodes(t.Context(), p.Client, now())
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Plan(t.Context(), f, view.Proposed{MachineConfigs: all, ContainerRuntimeConfigs: runtimes})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPlan: the effect on each node, in the order of a rollout, by what the node has now.
func TestPlan(t *testing.T) {
	file := `{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/x","contents":{"source":"data:,x"}}]}}}`
	for name, c := range map[string]struct {
		change    string
		want      string // nodes of the pool worker
		warns     string
		problem   string
		onCluster func(server)
	}{
		"a new file reboots":        {change: mc("60-file", "worker", file), want: "old reboot drain 1, young reboot drain 1, lost unknown 2", warns: "rendered-worker-0"},
		"one that replaces another": {change: mc("50-worker", "worker", `{"kernelArguments":["debug"]}`), want: "old reboot drain 1, young reboot drain 1, lost unknown 2"},
		"a key needs nothing":       {change: mc("60-key", "worker", `{"config":{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}}}`), want: "old live 1, young live 1, lost unknown 2"},
		"hyperthreads are lost":     {change: mc("60-smt", "worker", `{"kernelArguments":["nosmt"]}`), want: "old reboot drain 1, young reboot drain 1, lost unknown 2", warns: "lose up to half of their CPUs"},
		"hyperthreads are lost, by Ignition's arguments": {change: mc("60-smt", "worker", `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["nosmt"]}}}`),
			want: "old refused 0, young refused 0, lost unknown 1", warns: "lose up to half of their CPUs"},
		"what a machine cannot change": {change: mc("60-fips", "worker", `{"fips":true}`), want: "old refused 0, young refused 0, lost unknown 1", warns: "2 nodes refuse"},
		"for nobody":                   {change: mc("60-file", "storage", file), problem: "no pool of the cluster takes"},
		"a rendered one":               {change: mc("rendered-worker-2", "worker", file), problem: "a name that only the renderer gives"},
		"paused": {change: mc("60-file", "worker", file), want: "old reboot drain 1, young reboot drain 1, lost unknown 2", warns: "paused",
			onCluster: func(s server) { s[pools].([]any)[0].(map[string]any)["spec"].(map[string]any)["paused"] = true }},
		"a policy of the cluster": {change: mc("60-file", "worker", file), want: "old live 1, young live 1, lost unknown 2", onCluster: func(s server) {
			s["/apis/operator.openshift.io/v1/machineconfigurations/cluster"] = object(t, `{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{"name":"cluster"},
				"spec":{"nodeDisruptionPolicy":{"files":[{"path":"/etc/x","actions":[{"type":"None"}]}]}}}`)
		}},
		"no right to read the policy": {change: mc("60-file", "worker", file), problem: "the default is assumed", onCluster: func(s server) {
			s["/apis/operator.openshift.io/v1/machineconfigurations/cluster"] = http.StatusForbidden
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := fleet(t)
			if c.onCluster != nil {
				c.onCluster(s)
			}
			p := planOf(t, s, proposed(t, c.change))
			var got []string
			worker := p.Pools[1]
			for _, n := range worker.Nodes {
				text := n.Name + " " + n.Effect
				if n.Drain {
					text += " drain"
				}
				got = append(got, fmt.Sprintf("%s %d", text, n.Round))
			}
			if joined := strings.Join(got, ", "); c.want != "" && joined != c.want {
				t.Errorf("got  %s\nwant %s\n%+v", joined, c.want, worker)
			}
			if !strings.Contains(strings.Join(worker.Warnings, "\n"), c.warns) || !strings.Contains(p.Problems.String(), c.problem) || c.problem == "" && len(p.Problems) > 0 {
				t.Errorf("warnings %q, problems %v", worker.Warnings, p.Problems)
			}
			if merged := worker.Merged(); !strings.HasPrefix(worker.To, "rendered-worker-") || !strings.HasPrefix(merged.Spec.OSImageURL.String(), "r.example/os") {
				t.Errorf("it would be %s, with the image %s", worker.To, merged.Spec.OSImageURL)
			}
			if master := p.Pools[0]; master.AtOnce != 1 || len(master.Updates) == 1 && len(master.Updates[0].Changes) > 0 {
				t.Errorf("the other pool: %+v", master)
			}
			if text, err := json.Marshal(p); err != nil || strings.Contains(string(text), "null") {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
}

// TestPlanRuntimes: ContainerRuntimeConfigs become MachineConfigs as the renderer makes them, in place of what the
// cluster has of them.
func TestPlanRuntimes(t *testing.T) {
	runtime := func(name, pool, settings, annotations string) api.ContainerRuntimeConfig {
		text := fmt.Sprintf(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"ContainerRuntimeConfig","metadata":{"name":%q,"uid":%q,"annotations":{%s}},
			"spec":{"machineConfigPoolSelector":{"matchLabels":{"pool":%q}},"containerRuntimeConfig":%s}}`, name, name, annotations, pool, settings)
		var o api.ContainerRuntimeConfig
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	const suffix, made = `"machineconfiguration.openshift.io/mc-name-suffix":""`, "99-worker-generated-containerruntime"
	// pids is what the cluster has, with its MachineConfig.
	pids := func(s server) {
		s["/apis/machineconfiguration.openshift.io/v1/containerruntimeconfigs"] = []any{runtime("pids", "worker", `{"pidsLimit":2048}`, suffix)}
		mc := object(t, mc(made, "worker", `{"config":{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/old","contents":{"source":"data:,x"}}]}}}`))
		mc["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig", "name": "pids", "uid": "pids", "controller": true}}
		s[configs] = append(s[configs].([]any), mc)
	}
	storage := mc("40-storage", "worker", `{"config":{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/containers/storage.conf","contents":{"source":"data:,%5Bstorage%5D%0Adriver%20%3D%20%22overlay%22%0A"}}]}}}`)
	for name, c := range map[string]struct {
		cluster func(server)
		add     []api.ContainerRuntimeConfig
		with    string   // a MachineConfig
		has     []string // paths of the result
		problem string
		fails   bool
	}{
		"a new one":                 {add: []api.ContainerRuntimeConfig{runtime("debug", "worker", `{"logLevel":"debug"}`, "")}, has: []string{"/etc/crio/crio.conf.d/01-ctrcfg-logLevel"}},
		"one of the cluster":        {cluster: pids, with: storage, has: []string{"/etc/containers/storage.conf", "/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit"}},
		"one that replaces another": {cluster: pids, add: []api.ContainerRuntimeConfig{runtime("pids", "worker", `{"logLevel":"debug"}`, "")}, has: []string{"/etc/crio/crio.conf.d/01-ctrcfg-logLevel"}},
		"one for no pool any more":  {cluster: pids, add: []api.ContainerRuntimeConfig{runtime("pids", "nowhere", `{"logLevel":"debug"}`, "")}, problem: "could not find any MachineConfigPool", fails: true},
		"a second one":              {cluster: pids, add: []api.ContainerRuntimeConfig{runtime("debug", "worker", `{"logLevel":"debug"}`, "")}, has: []string{"/etc/crio/crio.conf.d/01-ctrcfg-logLevel", "/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit"}},
		"with a file of the pool":   {with: storage, add: []api.ContainerRuntimeConfig{runtime("size", "worker", `{"overlaySize":"8G"}`, "")}, has: []string{"/etc/containers/storage.conf"}},
		"without that file":         {add: []api.ContainerRuntimeConfig{runtime("size", "worker", `{"overlaySize":"8G"}`, "")}, problem: "storage.conf", fails: true},
		"an invalid one":            {add: []api.ContainerRuntimeConfig{runtime("pids", "worker", `{"pidsLimit":1}`, "")}, problem: "invalid PidsLimit 1", fails: true},
		"an invalid one of the cluster": {cluster: func(s server) {
			pids(s)
			s["/apis/machineconfiguration.openshift.io/v1/containerruntimeconfigs"] = []any{runtime("pids", "worker", `{"pidsLimit":1}`, suffix)}
		}, with: storage, has: []string{"/etc/containers/storage.conf", "/etc/old"}, problem: "what was generated from it before stays: "},
		"a MachineConfig of a person": {cluster: func(s server) { s[configs] = append(s[configs].([]any), object(t, mc(made, "worker", `{}`))) },
			add: []api.ContainerRuntimeConfig{runtime("pids", "worker", `{"pidsLimit":2048}`, "")}, problem: "not overwritten", fails: true},
		"no right to read them": {cluster: func(s server) {
			pids(s)
			s["/apis/machineconfiguration.openshift.io/v1/containerruntimeconfigs"] = http.StatusForbidden
		}, with: storage, has: []string{"/etc/containers/storage.conf", "/etc/old"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := fleet(t)
			s[pools].([]any)[0].(map[string]any)["metadata"].(map[string]any)["labels"] = map[string]any{"pool": "worker"}
			if c.cluster != nil {
				c.cluster(s)
			}
			var all []*authored.MachineConfig
			if c.with != "" {
				all = proposed(t, c.with)
			}
			p := planOf(t, s, all, c.add...)
			var has []string
			if merged := p.Pools[1].Merged(); merged != nil {
				for _, f := range merged.Spec.Config.Storage.Files {
					has = append(has, f.Path)
				}
			}
			slices.Sort(has)
			if !slices.Equal(has, c.has) || p.Problems.Failed() != c.fails || !strings.Contains(p.Problems.String(), c.problem) || c.problem == "" && len(p.Problems) > 0 {
				t.Errorf("the pool would have %q, want %q; problems: %v", has, c.has, p.Problems)
			}
			if unread := strings.Contains(strings.Join(p.Missing, ""), "ContainerRuntimeConfigs"); unread != (name == "no right to read them") {
				t.Errorf("not read: %q", p.Missing)
			}
		})
	}
}

// TestPlanReportsAll: problems of all pools are in one report, and a pool that cannot be merged has no name.
func TestPlanReportsAll(t *testing.T) {
	s := fleet(t)
	s[configs] = append(s[configs].([]any), object(t, mc("70-bad", "worker", `{"kernelType":"none","fips":1}`)))
	p := planOf(t, s, proposed(t, mc("rendered-x", "worker", `{}`), mc("fetched-x", "worker", `{}`)))
	for _, want := range []string{"MachineConfig 70-bad of the cluster", "kernelType", "fips", "rendered-x", "fetched-x"} {
		if !strings.Contains(p.Problems.String(), want) {
			t.Errorf("the report lacks %s: %v", want, p.Problems)
		}
	}
}

// TestPlanIgnoresResults: what the renderer has made is not merged, also by a pool that selects what has no role.
func TestPlanIgnoresResults(t *testing.T) {
	to := func(made ...any) string {
		s := fleet(t)
		s[pools].([]any)[0].(map[string]any)["spec"].(map[string]any)["machineConfigSelector"] =
			object(t, `{"matchExpressions":[{"key":"machineconfiguration.openshift.io/role","operator":"NotIn","values":["master"]}]}`)
		s[configs] = append(s[configs].([]any), made...)
		return planOf(t, s, nil).Pools[1].To
	}
	const spec = `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":%q},"spec":{"kernelArguments":["audit=1"],"config":{"ignition":{"version":"3.4.0"}}}}`
	want := to()
	for name, ignored := range map[string]bool{"fetched-0123": true, "rendered-0123": true, "60-mine": false} {
		if got := to(object(t, fmt.Sprintf(spec, name))); (got == want) != ignored || got == "" {
			t.Errorf("with %s the pool would have %q, without it %q", name, got, want)
		}
	}
}

// TestPlanWithoutKind: a cluster without MachineConfigs is no empty plan.
func TestPlanWithoutKind(t *testing.T) {
	s := fleet(t)
	delete(s, configs)
	p := planner(t, s)
	f, err := view.ObserveNodes(t.Context(), p.Client, now())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := p.Plan(t.Context(), f, view.Proposed{}); err == nil {
		t.Errorf("%+v", out)
	}
}
