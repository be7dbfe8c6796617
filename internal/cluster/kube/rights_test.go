package kube_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"machine-pivot/internal/cluster/kube"
)

// The paths of the API that the requests below use.
const (
	corePath     = "/api/v1/"
	operatorPath = "/apis/machineconfiguration.openshift.io/v1/"
	ownPath      = "/apis/machine-pivot.io/v1alpha1/"
	budgetsPath  = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
)

// request is a request to the API server.
type request struct {
	verb, path string
	body       string
}

func (r request) send(ctx context.Context, api rest.Interface) error {
	var q *rest.Request
	switch r.verb {
	case "get":
		q = api.Get()
	case "delete":
		q = api.Delete()
	case "create":
		q = api.Post()
	case "patch":
		q = api.Patch(types.MergePatchType)
	case "apply":
		q = api.Patch(types.ApplyPatchType)
	}
	q = q.RequestURI(r.path).MaxRetries(0)
	if r.verb == "apply" {
		q = q.Param("fieldManager", "pivot-agent").Param("force", "true")
	}
	if r.body != "" {
		q = q.Body([]byte(r.body))
	}
	return q.Do(ctx).Error()
}

// requests are the requests in the table of rights in docs/cluster-reference.md, as the agent of n1 would send them.
func requests() map[string]request {
	const cordon, note, label = `{"spec":{"unschedulable":true}}`, `{"metadata":{"annotations":{"a.example/b":"c"}}}`, `{"metadata":{"labels":{"node-restriction.kubernetes.io/a":"b"}}}`
	const cores = `{"metadata":{"annotations":{"a.example/b":"d"}},"status":{"capacity":{"management.workload.openshift.io/cores":"4000"}}}`
	const taint, event = `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`, `{"apiVersion":"v1","kind":"Event","metadata":{"generateName":"n1."},"involvedObject":{"kind":"Node","name":"n1"},"reason":"Test","type":"Normal"}`
	system := func(name string) request {
		return request{"apply", ownPath + "nodesystems/" + name, fmt.Sprintf(`{"apiVersion":"machine-pivot.io/v1alpha1","kind":"NodeSystem","metadata":{"name":%q}}`, name)}
	}
	update := func(name string) request {
		return request{"apply", operatorPath + "machineconfignodes/" + name, fmt.Sprintf(
			`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfigNode","metadata":{"name":%q},"spec":{"node":{"name":%q},"pool":{"name":"worker"},"configVersion":{"desired":"mc"}}}`, name, name)}
	}
	evict := func(pod string) request { // which changes nothing
		return request{"create", corePath + "namespaces/default/pods/" + pod + "/eviction", fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q},"deleteOptions":{"dryRun":["All"]}}`, pod)}
	}
	return map[string]request{
		"read its Node":                               {"get", corePath + "nodes/n1", ""},
		"watch its Node":                              {"get", corePath + "nodes?fieldSelector=metadata.name%3Dn1&watch=true&timeoutSeconds=1", ""},
		"annotate its Node":                           {"patch", corePath + "nodes/n1", note},
		"cordon its Node":                             {"patch", corePath + "nodes/n1", cordon},
		"say how much its Node has of a resource":     {"patch", corePath + "nodes/n1/status", cores},
		"say how much another Node has of a resource": {"patch", corePath + "nodes/n2/status", cores},
		"taint its Node":                              {"patch", corePath + "nodes/n1", taint},
		"give its Node a label of isolation":          {"patch", corePath + "nodes/n1", label},
		"delete its Node":                             {"delete", corePath + "nodes/n1", ""},
		"read another Node":                           {"get", corePath + "nodes/n2", ""},
		"list Nodes":                                  {"get", corePath + "nodes", ""},
		"watch another Node":                          {"get", corePath + "nodes?fieldSelector=metadata.name%3Dn2&watch=true&timeoutSeconds=1", ""},
		"annotate another Node":                       {"patch", corePath + "nodes/n2", note},
		"cordon another Node":                         {"patch", corePath + "nodes/n2", cordon},
		"read a MachineConfig by its name, with `deploy/by-name`": {"get", operatorPath + "machineconfigs/mc", ""},
		"list MachineConfigs":             {"get", operatorPath + "machineconfigs", ""},
		"change a MachineConfig":          {"patch", operatorPath + "machineconfigs/mc", note},
		"delete a MachineConfig":          {"delete", operatorPath + "machineconfigs/mc", ""},
		"write its MachineConfigNode":     update("n1"),
		"write another MachineConfigNode": update("n2"),
		"list MachineConfigNodes":         {"get", operatorPath + "machineconfignodes", ""},
		"read another MachineConfigNode":  {"get", operatorPath + "machineconfignodes/n2", ""},
		"read pools":                      {"get", operatorPath + "machineconfigpools", ""},
		"write its NodeSystem":            system("n1"),
		"write another NodeSystem":        system("n2"),
		"delete its NodeSystem":           {"delete", ownPath + "nodesystems/n1", ""},
		"record an event about its Node":  {"create", corePath + "namespaces/default/events", event},
		"read events":                     {"get", corePath + "namespaces/default/events", ""},
		"read Secrets":                    {"get", corePath + "secrets", ""},
		"list the pods of all nodes":      {"get", corePath + "pods", ""},
		"delete a pod of its node":        {"delete", corePath + "namespaces/default/pods/p1?dryRun=All", ""},
		"delete a pod of another node":    {"delete", corePath + "namespaces/default/pods/p2", ""},
		"read roles":                      {"get", "/apis/rbac.authorization.k8s.io/v1/clusterroles", ""},
		"list the pods of its node":       {"get", corePath + "pods?fieldSelector=spec.nodeName%3Dn1", ""},
		"evict a pod of its node":         evict("p1"),
		"evict a pod of another node":     evict("p2"),
		"list budgets":                    {"get", budgetsPath, ""},
		"read a budget by its name":       {"get", budgetsPath + "/b", ""},
		"change a budget":                 {"patch", budgetsPath + "/b", note},
		"delete a budget":                 {"delete", budgetsPath + "/b", ""},
	}
}

// TestRights compares what the real API server allows the agent of a node with the table in docs/cluster-reference.md. The
// account of the pods of deploy/pod has no rights.
func TestRights(t *testing.T) {
	w := newWorld(t)
	w.plane.Deploy("../../../deploy/pod")
	for pod, on := range map[string]string{"p1": "n1", "p2": "n2"} {
		w.plane.Apply(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "default", "name": pod},
			"spec": map[string]any{"nodeName": on, "containers": []any{map[string]any{"name": "c", "image": "c"}}}})
	}
	documented, account := documentedRights(t), w.account()
	w.eventually("the policy is in force", func() error {
		if err := requests()["write another NodeSystem"].send(t.Context(), w.API); !apierrors.IsForbidden(err) {
			return fmt.Errorf("another NodeSystem: %w", err)
		}
		return requests()["list budgets"].send(t.Context(), w.API)
	})
	for what, r := range requests() {
		want, ok := documented[what]
		if !ok {
			t.Errorf("docs/cluster-reference.md does not say whether an agent may %s", what)
			continue
		}
		if err := r.send(t.Context(), w.API); want == "yes" && err != nil || want == "no" && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %s, but: %v", what, want, err)
		}
		if err := r.send(t.Context(), account); !apierrors.IsForbidden(err) {
			t.Errorf("%s, by the account of the pods: %v", what, err)
		}
	}
	for what := range documented {
		if _, ok := requests()[what]; !ok {
			t.Errorf("docs/cluster-reference.md says whether an agent may %s, which is not tried", what)
		}
	}
}

// documentedRights returns the rows of the table of rights: what, and whether an agent may.
func documentedRights(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("../../../docs/cluster-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	_, table, found := strings.Cut(string(data), "\n| an agent may | |\n|---|---|\n")
	for line := range strings.Lines(table) {
		what, verdict, ok := strings.Cut(strings.Trim(line, "| \n"), " | ")
		if !ok {
			break
		}
		rows[what] = verdict
	}
	if !found || len(rows) == 0 {
		t.Fatal("docs/cluster-reference.md has no table of rights")
	}
	return rows
}

// account returns a client with a token of the account that the pods of the DaemonSet have.
func (w world) account() rest.Interface {
	w.Helper()
	issued, err := w.client.CoreV1().ServiceAccounts("pivot-agent").CreateToken(w.Context(), "pivot-agent", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	config := rest.AnonymousClientConfig(w.plane.Admin())
	config.BearerToken = issued.Status.Token
	client, err := kube.New(config)
	if err != nil {
		w.Fatal(err)
	}
	return client
}
