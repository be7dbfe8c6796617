package view_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/view"
)

const (
	oldConfig = "rendered-worker-0123456789abcdef0123456789abcdef"
	newConfig = "rendered-worker-fedcba9876543210fedcba9876543210"
)

func now() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }

// newPool returns a pool of the nodes with the label of its role.
func newPool(name, target string) api.MachineConfigPool {
	p := api.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}}
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"machineconfiguration.openshift.io/role": name}}
	p.Spec.Configuration.Name = target
	return p
}

// newNode returns a ready node of a pool.
func newNode(name, role, current, desired, state, reason string) view.Node {
	n := view.Node{Metadata: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/" + role: ""}, Annotations: map[string]string{
		api.CurrentConfig: current, api.DesiredConfig: desired, api.StateOfNode: state, api.Reason: reason}}}
	n.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
	return n
}

func newEvent(node, reason, message string, at time.Time) view.Event {
	e := view.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(at)}
	e.InvolvedObject.Name = node
	return e
}

// rolling is a fleet in the middle of a rollout, with text in its objects that would control a terminal.
func rolling() view.Facts {
	worker, master := newPool("worker", newConfig), newPool("master", "rendered-master-1")
	two := intstr.FromInt32(2)
	worker.Spec.MaxUnavailable = &two
	rollout := api.PoolRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	rollout.Status = api.PoolRolloutStatus{Target: newConfig, Taken: []string{"w2", "w3"},
		Waiting: "the node w3 drains: the budget shop/database forbids the eviction of the pod shop/database-0, which is one of two"}
	f := view.Facts{
		Now: now(), Pools: []api.MachineConfigPool{worker, master}, Rollouts: []api.PoolRollout{rollout},
		Nodes: []view.Node{
			newNode("w1", "worker", newConfig, newConfig, api.StateDone, ""),
			newNode("w2", "worker", oldConfig, newConfig, api.StateWorking, ""),
			newNode("w3.a-name-that-is-rather-long.datacenter-7.example.org", "worker", oldConfig, newConfig, api.StateWorking,
				"waits with the drain: \x1b[31m\x1b[2J https://user:hunter2@registry.example/x\nw9 Done"),
			newNode("w4", "worker", oldConfig, oldConfig, api.StateDone, ""),
			newNode("m1", "master", "rendered-master-1", "rendered-master-1", api.StateDone, ""),
			newNode("spare", "storage", "", "", "", ""),
		},
		Systems: []api.NodeSystem{{ObjectMeta: metav1.ObjectMeta{Name: "w2"}, Status: api.NodeSystemStatus{Step: "wait",
			Progress: &api.Progress{Step: "pull", Percent: 42, BytesPulled: 812_345_678}}}},
		Events: []view.Event{
			newEvent("w1", api.EventUpdateStarted, "checks and downloads "+newConfig, now().Add(-20*time.Minute)),
			newEvent("w1", api.EventDone, "the node has "+newConfig, now().Add(-8*time.Minute)),
			newEvent("w4", api.EventDone, "the node has "+oldConfig, now().Add(-3*time.Minute)),
		},
		Missing: []string{"the state of systems (NodeSystem): no\x07rights"},
	}
	f.Nodes[2].Spec.Unschedulable = true
	return f
}

// degraded is a fleet that has stopped; its reader may see little.
func degraded() view.Facts {
	worker, infra := newPool("worker", newConfig), newPool("infra", oldConfig)
	worker.Status.Conditions = []metav1.Condition{
		{Type: api.PoolNodeDegraded, Status: api.True, Message: "the node w1 has failed: cannot pull"},
		{Type: api.PoolUpdated, Status: api.False, Message: "not shown"},
		{Type: api.PoolUpdating, Status: api.True, Message: "stopped after 1 failed node"}}
	infra.Spec.Paused = true
	f := view.Facts{Now: now(), Pools: []api.MachineConfigPool{worker, infra}, Nodes: []view.Node{
		newNode("w1", "worker", oldConfig, newConfig, api.StateDegraded, "cannot pull: 404"),
		newNode("i1", "infra", newConfig, newConfig, api.StateDone, ""),
	}}
	f.Nodes[1].Metadata.Labels["node-role.kubernetes.io/worker"] = "" // as nodes of custom pools have
	f.Nodes[1].Status.Conditions[0].Status = metav1.ConditionUnknown
	f.Systems = []api.NodeSystem{{ObjectMeta: metav1.ObjectMeta{Name: "i1"}, Status: api.NodeSystemStatus{
		AgentVersion: "1", Config: api.ConfigNames{Current: newConfig}, KernelArguments: api.KernelArguments{Missing: []string{"nosmt"}}}}}
	return f
}

// TestText compares the text with golden files, and holds it within the width and free of control characters.
func TestText(t *testing.T) {
	for name, f := range map[string]view.Facts{"rolling": rolling(), "degraded": degraded(), "empty": {Missing: []string{"pools: the cluster does not have this kind of objects"}}} {
		for _, width := range []int{80, 120, 0} {
			var out bytes.Buffer
			s, ok := view.Judge(f, "")
			if !ok {
				t.Fatal("no status")
			}
			s.WriteText(&out, width)
			for line := range strings.Lines(out.String()) {
				line = strings.TrimSuffix(line, "\n")
				if n := utf8.RuneCountInString(line); width > 0 && n > width {
					t.Errorf("%s: a line has %d characters, not %d: %s", name, n, width, line)
				}
				if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.Contains(line, "hunter2") {
					t.Errorf("%s: the line %q", name, line)
				}
			}
			compare(t, fmt.Sprintf("%s-%d.txt", name, width), out.Bytes())
		}
	}
}

// compare compares text with a golden file; UPDATE_GOLDEN=1 writes it.
func compare(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v, got\n%s\nwant\n%s", name, err, got, want)
	}
}

// TestExpected: the time is the median of the finished nodes of this rollout; without one, the text says why.
func TestExpected(t *testing.T) {
	judged := func(change func(*view.Facts)) view.Expected {
		f := rolling()
		change(&f)
		s, ok := view.Judge(f, "worker")
		if !ok || len(s.Pools) != 1 || len(s.Unpooled) != 0 {
			t.Fatalf("%v %+v", ok, s)
		}
		return s.Pools[0].Expected
	}
	for name, c := range map[string]struct {
		change func(*view.Facts)
		want   string
	}{
		"one measured, three left, two at a time": {func(*view.Facts) {}, "about 24m: 12m a node, measured on 1"},
		"one at a time": {func(f *view.Facts) { f.Pools[0].Spec.MaxUnavailable = nil }, "about 36m: 12m a node, measured on 1"},
		"half of them": {func(f *view.Facts) {
			half := intstr.FromString("50%")
			f.Pools[0].Spec.MaxUnavailable = &half
		}, "about 24m: 12m a node, measured on 1"},
		"started twice": {func(f *view.Facts) {
			f.Events = append(f.Events, newEvent("w1", api.EventUpdateStarted, "checks and downloads "+newConfig, now().Add(-10*time.Minute)))
		}, "about 4m: 2m a node, measured on 1"},
		"no events":          {func(f *view.Facts) { f.Events = nil }, "unknown: no node of this rollout has finished, or its events are gone"},
		"only another one's": {func(f *view.Facts) { f.Events = f.Events[2:] }, "unknown: no node of this rollout has finished, or its events are gone"},
		"paused":             {func(f *view.Facts) { f.Pools[0].Spec.Paused = true }, "unknown: the pool is paused"},
		"failed":             {func(f *view.Facts) { f.Nodes[1].Metadata.Annotations[api.StateOfNode] = api.StateDegraded }, "unknown: a failure has to be ended first"},
		"no nodes": {func(f *view.Facts) { f.Nodes, f.Pools[0].Status.MachineCount = nil, 4 },
			"unknown: it is unknown what the nodes should have, or have"},
		"all there": {func(f *view.Facts) { f.Nodes = f.Nodes[:1] }, ""},
	} {
		if got := judged(c.change).String(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestPoolOfNode: a node is in one pool, as the machine-config operator decides it.
func TestPoolOfNode(t *testing.T) {
	pools := []api.MachineConfigPool{newPool("master", ""), newPool("worker", ""), newPool("infra", ""), newPool("gpu", ""), {ObjectMeta: metav1.ObjectMeta{Name: "all"}}}
	for roles, want := range map[string]string{
		"worker": "worker", "master": "master", "master worker": "master", "infra worker": "infra", "infra": "infra",
		"infra gpu worker": "", "master infra": "master", "storage": "",
	} {
		n := newNode("n", "none", "", "", "", "")
		for role := range strings.FieldsSeq(roles) {
			n.Metadata.Labels["node-role.kubernetes.io/"+role] = ""
		}
		s, _ := view.Judge(view.Facts{Pools: pools, Nodes: []view.Node{n}}, "")
		got := ""
		for _, p := range s.Pools {
			if len(p.Machines) > 0 {
				got += p.Name
			}
		}
		if got != want || len(s.Unpooled) != map[bool]int{true: 1}[want == ""] {
			t.Errorf("%s: in the pool %q, want %q", roles, got, want)
		}
	}
}

// TestNoPool: a pool that is not there is no empty answer.
func TestNoPool(t *testing.T) {
	if s, ok := view.Judge(rolling(), "workers"); ok {
		t.Errorf("%+v", s)
	}
}

// TestArraysInJSON: what is empty is [] and not null, so that programs need no second case.
func TestArraysInJSON(t *testing.T) {
	s, _ := view.Judge(view.Facts{Pools: []api.MachineConfigPool{newPool("worker", "")}}, "")
	text, err := json.Marshal(s)
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestUpdatedIsProven: a node counts as one that has the target by the same rule as the controller's. What the rollout
// waits for is shown also if all nodes have it.
func TestUpdatedIsProven(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(n *view.Node, s *api.NodeSystemStatus)
		updated int
		reason  string
	}{
		"proven":             {func(*view.Node, *api.NodeSystemStatus) {}, 1, ""},
		"no agent":           {func(_ *view.Node, s *api.NodeSystemStatus) { *s = api.NodeSystemStatus{} }, 1, ""},
		"booted since":       {func(n *view.Node, _ *api.NodeSystemStatus) { n.Status.NodeInfo.BootID = "2" }, 0, "has booted, and its agent has not reported since"},
		"another one runs":   {func(_ *view.Node, s *api.NodeSystemStatus) { s.Config.Current = oldConfig }, 0, "and its system is \"" + oldConfig},
		"a missing argument": {func(_ *view.Node, s *api.NodeSystemStatus) { s.KernelArguments.Missing = []string{"audit=1"} }, 0, "lacks the kernel argument audit=1"},
		"a failed proof": {func(_ *view.Node, s *api.NodeSystemStatus) {
			s.Proof = &api.Proof{Differences: []string{"file /etc/a: differs"}}
		}, 0, "/etc/a"},
		"without a state": {func(n *view.Node, _ *api.NodeSystemStatus) { delete(n.Metadata.Annotations, api.StateOfNode) }, 0, ""},
		"in change": {func(n *view.Node, _ *api.NodeSystemStatus) {
			n.Metadata.Annotations[api.StateOfNode] = api.StateWorking
		}, 0, ""},
		"it cannot start the target": {func(n *view.Node, _ *api.NodeSystemStatus) {
			n.Metadata.Annotations[api.DesiredConfig] = oldConfig
			n.Metadata.Annotations[api.CannotStart] = api.Cannot{Config: newConfig, BootID: "1", Verdicts: "processor", Reason: "needs v3; another image"}.String()
		}, 0, "processor: needs v3; another image"},
		"another one is wanted": {func(n *view.Node, _ *api.NodeSystemStatus) { n.Metadata.Annotations[api.DesiredConfig] = oldConfig }, 0, ""},
	} {
		n, s := newNode("w1", "worker", newConfig, newConfig, api.StateDone, ""), api.NodeSystem{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}
		n.Status.NodeInfo.BootID = "1"
		s.Status = api.NodeSystemStatus{AgentVersion: "1", BootID: "1", Config: api.ConfigNames{Current: newConfig}}
		c.change(&n, &s.Status)
		r := api.PoolRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Status: api.PoolRolloutStatus{Target: newConfig, Waiting: "waits: Deployment shop/front is not available"}}
		got, _ := view.Judge(view.Facts{Now: now(), Pools: []api.MachineConfigPool{newPool("worker", newConfig)}, Nodes: []view.Node{n},
			Systems: []api.NodeSystem{s}, Rollouts: []api.PoolRollout{r}}, "")
		p := got.Pools[0]
		if p.Counts.Updated != c.updated || (p.State == view.StateUpdated) != (c.updated == 1) || p.Waiting != r.Status.Waiting || !strings.Contains(p.Machines[0].Reason, c.reason) {
			t.Errorf("%s: %s, %+v, waits %q, %q", name, p.State, p.Counts, p.Waiting, p.Machines[0].Reason)
		}
	}
}

// TestCountsAreThePools: the counts are those of the MachineConfigPool's status. A node that was never given a
// configuration is not updated; one that is to be left alone does not count.
func TestCountsAreThePools(t *testing.T) {
	pool := api.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: api.MachineConfigPoolSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"worker": ""}}, Configuration: api.PoolConfiguration{Name: "rendered-worker-1"}}}
	f := view.Facts{Pools: []api.MachineConfigPool{pool}}
	for _, c := range []struct{ labels, annotations map[string]string }{
		{map[string]string{"worker": ""}, nil},
		{map[string]string{"worker": ""}, map[string]string{api.CurrentConfig: "rendered-worker-1"}},
		{map[string]string{"worker": "", api.AgentLabel: "off"}, nil},
		{map[string]string{"worker": "", api.AgentLabel: "off"}, map[string]string{api.DesiredConfig: "rendered-worker-1"}},
	} {
		n := view.Node{Metadata: metav1.ObjectMeta{Name: fmt.Sprint("n", len(f.Nodes)), Labels: c.labels, Annotations: c.annotations}}
		f.Nodes = append(f.Nodes, n)
	}
	s, _ := view.Judge(f, "")
	if p := s.Pools[0]; p.Counts.Nodes != 2 || p.Counts.Updated != 0 || p.State != view.StateUpdating || len(p.Machines) != 4 {
		t.Errorf("%+v", p)
	}
}
