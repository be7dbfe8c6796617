package kube_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// seen is the agent's real cluster, and tells the world's machine what the agent sees of the node.
type seen struct {
	node.Cluster
	machine *nodeagent.World
}

func (s seen) Node(ctx context.Context) (n node.Node, err error) {
	if n, err = s.Cluster.Node(ctx); err == nil {
		s.machine.Node = n
	}
	return n, err
}

func (s seen) Patch(ctx context.Context, read node.Node, p node.Patch) (n node.Node, err error) {
	if n, err = s.Cluster.Patch(ctx, read, p); err == nil {
		s.machine.Node = n
	}
	return n, err
}

// TestRollout is the whole way of a node to another MachineConfig, at a real API server and with a stand-in for the
// machine. A budget keeps it waiting; then it is drained, rebooted, proven and given back. On a node that an
// administrator has cordoned, and that has downloaded the MachineConfig before its turn, the cordon stays.
func TestRollout(t *testing.T) {
	w := newDrainWorld(t, startControlPlane(t), "node-rollout")
	w.cordon(false)
	w.machineConfigs("a", "reboot", "second")
	w.Kubelet(t, "other")
	protected, stays := w.pod("db-0", app("db"), controller("ReplicaSet")), w.pod("daemon", controller("DaemonSet"))
	w.budget("db", "db", minAvailable(1), 0)
	m := w.machine(protected)
	w.want("reboot")
	w.traffic.take()

	reach := func(what string, settled func() bool) {
		t.Helper()
		if _, err := m.Run(settled); err != nil || len(m.Violations) > 0 {
			t.Fatalf("%s: %v, %q", what, err, m.Violations)
		}
	}
	done := func(config string) func() bool {
		return func() bool { return m.State() == api.StateDone && m.Note(api.CurrentConfig) == config }
	}
	w.drainer.Limit = impatient
	reach("blocked", func() bool { return m.Note(api.Reason) != "" })
	if reason := m.Note(api.Reason); m.State() != api.StateWorking || !strings.Contains(reason, "cannot drain the node: node-rollout/db-0: protected by the budget node-rollout/db,") {
		t.Errorf("%s, %q", m.State(), reason)
	}
	reach("published", func() bool {
		object, err := w.admin.CoreV1().RESTClient().Get().AbsPath("/apis/machineconfiguration.openshift.io/v1/machineconfignodes/node-rollout").DoRaw(t.Context())
		return err == nil && strings.Contains(string(object), "protected by the budget node-rollout/db,")
	})
	if !w.untouched(protected) || m.Machine.Current != "a" {
		t.Errorf("a budget forbids the drain, and yet: machine %+v", m.Machine)
	}

	w.pod("db-1", app("db"), controller("ReplicaSet"), on("other"))
	w.allows("db", 1)
	w.drainer.Limit = patient
	reach("allowed", done("reboot"))
	if !w.gone(protected) || !w.untouched(stays) || m.Machine.Boots != 1 || m.Machine.Current != "reboot" {
		t.Errorf("machine %+v", m.Machine)
	}
	if n := w.node(); n.Unschedulable || n.Annotations[api.CordonedFor] != "" || n.Annotations[api.LastAppliedDrain] != api.UncordonFor("reboot") {
		t.Errorf("%+v", n)
	}
	w.events(api.EventFailedToDrain, api.EventDrainRehearsed, api.EventCordon, api.EventDrain, api.EventReboot, api.EventUncordon, api.EventDone)

	w.cordon(true)
	moved := w.pod("db-2", app("db"), controller("ReplicaSet"))
	w.allows("db", 1)
	proofs, early := m.Machine.Verified, false
	reach("downloaded before its turn, and cordoned by an administrator", func() bool {
		switch {
		case m.Note(api.Download) == "" && m.Machine.Verified > proofs: // the agent is at rest
			w.traffic.take()
			w.annotate(api.Download, "second")
		case !early && w.downloaded("second"):
			early = true
			w.want("second")
		}
		return done("second")()
	})
	const most = 43 // one of them because the pull has got further
	if requests := w.traffic.take(); len(requests) > most {
		t.Errorf("%d requests for a rollout: %q", len(requests), requests)
	} else {
		t.Log(len(requests), "requests for a rollout")
	}
	if n := w.node(); !early || !n.Unschedulable || n.Annotations[api.CordonedFor] != "" || !w.gone(moved) || m.Machine.Boots != 2 {
		t.Errorf("%+v, machine %+v", n, m.Machine)
	}
}

// machine returns the world's machine. Its agents use the real cluster. A reboot of it while a pod runs is a violation.
func (w *drainWorld) machine(pod *corev1.Pod) *nodeagent.World {
	m := nodeagent.New()
	m.Cluster, m.Drainer = seen{w.drainer.Cluster, m}, &w.drainer
	m.Before = func(int, string) {
		m.Pods = 0
		if !w.gone(pod) {
			m.Pods = 1
		}
	}
	return m
}

// machineConfigs creates MachineConfigs.
func (w *drainWorld) machineConfigs(names ...string) {
	w.Helper()
	for _, name := range names {
		w.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": map[string]any{"name": name}, "spec": map[string]any{"kernelArguments": []string{name}}})
	}
}

// downloaded reports whether the node's NodeSystem says that it has downloaded a MachineConfig.
func (w *drainWorld) downloaded(config string) bool {
	w.Helper()
	object, err := w.admin.CoreV1().RESTClient().Get().AbsPath("/apis/machine-pivot.io/v1alpha1/nodesystems/" + w.name).DoRaw(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return strings.Contains(string(object), fmt.Sprintf(`"download":{"config":%q}`, config))
}

// want names the MachineConfig that the node is to have.
func (w *drainWorld) want(config string) {
	w.Helper()
	w.annotate(api.DesiredConfig, config)
}

// annotate sets an annotation of the node.
func (w *drainWorld) annotate(name, value string) {
	w.Helper()
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value)
	if _, err := w.admin.CoreV1().Nodes().Patch(w.Context(), w.name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// events checks that there are events of the node with some reasons.
func (w *drainWorld) events(reasons ...string) {
	w.Helper()
	list, err := w.admin.CoreV1().Events("default").List(w.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + w.name})
	if err != nil {
		w.Fatal(err)
	}
	there := map[string]string{}
	for _, e := range list.Items {
		there[e.Reason] += e.Message
	}
	for _, reason := range reasons {
		if there[reason] == "" {
			w.Errorf("no event %s: %v", reason, there)
		}
	}
	if !strings.Contains(there[api.EventFailedToDrain], "budget "+w.name+"/db") {
		w.Errorf("the event does not name the budget: %q", there[api.EventFailedToDrain])
	}
}
