package kube_test

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// TestContract holds the cluster in memory, in which the agent is killed in each of its calls, against
// the real API server: for each step, both answer alike.
func TestContract(t *testing.T) {
	memory := nodeagent.New()
	memory.Node.Annotations = map[string]string{"other": "kept"}
	memory.Configs = map[string]nodeagent.Config{"mc": {}}
	w := newWorld(t)
	stands := contract(t, memory.Agent().Cluster)
	w.eventually("the agent has its rights", func() error {
		_, err := w.MachineConfig(t.Context(), "mc")
		return err
	})
	real := contract(t, w.Cluster)
	for i := range max(len(stands), len(real)) {
		if i >= len(stands) || i >= len(real) || stands[i] != real[i] {
			t.Errorf("step %d: in memory\n%s\nat the API server\n%s", i+1, stands[i], real[i])
		}
	}
}

// contract makes the calls of an agent, and returns what each has answered.
func contract(t *testing.T, c node.Cluster) (answers []string) {
	t.Helper()
	ctx := t.Context()
	versions := map[string]int{} // in the order in which they were seen
	say := func(n node.Node, err error) node.Node {
		t.Helper()
		answer := map[string]any{"conflict": errors.Is(err, node.ErrConflict), "missing": errors.Is(err, node.ErrNoMachineConfig)}
		if err == nil {
			if _, seen := versions[n.ResourceVersion]; !seen {
				versions[n.ResourceVersion] = len(versions)
			}
			answer["node"], answer["version"] = []any{n.Name, n.Annotations, n.Unschedulable, n.ControlPlane}, versions[n.ResourceVersion]
		}
		text, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, string(text))
		n.Annotations = maps.Clone(n.Annotations)
		return n
	}
	value := func(s string) *string { return &s }
	patch := func(read node.Node, p node.Patch) node.Node { t.Helper(); return say(c.Patch(ctx, read, p)) }

	first := say(c.Node(ctx))
	noted := patch(first, node.Patch{Annotations: map[string]*string{api.StateOfNode: value("Working"), api.Reason: value(""), api.FailedConfig: nil}})
	same := patch(noted, node.Patch{Annotations: map[string]*string{api.StateOfNode: value("Working"), "missing": nil}})
	patch(first, node.Patch{Unschedulable: new(true)})
	cordoned := patch(same, node.Patch{Unschedulable: new(true), Annotations: map[string]*string{api.CordonedFor: value("mc")}})
	patch(same, node.Patch{Annotations: map[string]*string{api.CordonedFor: nil}})
	ended := patch(cordoned, node.Patch{Unschedulable: new(false), Annotations: map[string]*string{api.CordonedFor: nil, api.StateOfNode: value("Done")}})
	patch(ended, node.Patch{Unschedulable: new(false)})
	say(c.Node(ctx))
	for _, name := range []string{"mc", "nowhere"} {
		_, err := c.MachineConfig(ctx, name)
		say(node.Node{Name: name}, err)
	}
	for range 2 {
		say(node.Node{}, c.Record(ctx, ended, node.Event{Reason: api.EventDone, Message: "m"}))
		say(node.Node{}, c.PublishSystem(ctx, ended, api.NodeSystemStatus{Step: "rest", KernelArguments: api.KernelArguments{Missing: []string{}, Excess: []string{}}}))
	}
	return answers
}
