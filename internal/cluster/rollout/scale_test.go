package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// largeFleet is a fleet in the middle of a rollout: a tenth of its nodes is being changed. If all have failed,
// that is the case of the longest lists.
func largeFleet(nodes int, failed bool) rollout.Fleet {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	tenth, all := intstr.FromString("10%"), intstr.FromString("100%")
	p := rollout.Pool{Name: "worker", RolloutVersion: "1", MaxUnavailable: &tenth, Configuration: api.PoolConfiguration{Name: "rendered-worker-new"},
		Selector: &v1.LabelSelector{MatchLabels: map[string]string{role("worker"): ""}}}
	if failed {
		p.MaxUnavailable, p.Spec.StopAfter = &all, int32(2*nodes)
	}
	f := rollout.Fleet{Now: now}
	for i := range nodes {
		n := rollout.Node{Name: fmt.Sprintf("n%05d", i), Version: "1", Created: now.Add(-time.Hour), BootID: "b",
			Labels:      map[string]string{role("worker"): "", "topology.kubernetes.io/zone": fmt.Sprint(i % 3)},
			System:      &api.JudgedSystem{Current: "rendered-worker-old", BootID: "b"},
			Annotations: map[string]string{api.DesiredConfig: "rendered-worker-old", api.CurrentConfig: "rendered-worker-old", api.StateOfNode: api.StateDone}}
		if failed || i%10 == 0 {
			n.Annotations[api.DesiredConfig], n.Annotations[api.StateOfNode] = "rendered-worker-new", api.StateWorking
			p.Rollout.Taken = append(p.Rollout.Taken, n.Name)
		}
		if failed {
			n.Annotations[api.StateOfNode], n.Annotations[api.Reason] = api.StateDegraded, "cannot pull"
			p.Rollout.Failed = append(p.Rollout.Failed, api.FailedNode{Name: n.Name, Reason: "Degraded: cannot pull"})
		}
		f.Nodes = append(f.Nodes, n)
	}
	f.Pools = []rollout.Pool{p}
	return f
}

// TestManyFail: however many nodes fail at once, with reasons however long, the PoolRollout's status can be written,
// counts all, and does not change from pass to pass. No node is told of twice.
func TestManyFail(t *testing.T) {
	const nodes, largest = 5000, 800_000 // etcd takes requests of 1.5 MiB
	long := strings.Repeat("x", 1900)
	for name, c := range map[string]struct {
		change func(p *rollout.Pool)
		says   string
	}{
		"the first failures stop it": {func(*rollout.Pool) {}, "stopped: n00000; n00001; n00002 and 4997 more have failed with rendered-worker-new; n00000: "},
		"it goes back": {func(p *rollout.Pool) { p.Spec.ReturnToLastGood, p.Rollout.LastGood = true, "rendered-worker-old" },
			"rendered-worker-new is given up, since it failed on n00000; n00001; n00002 and 4997 more; the nodes get rendered-worker-old: "},
		"the named ones stay": {func(p *rollout.Pool) {
			p.Rollout.Failed, p.Rollout.FailedCount = []api.FailedNode{{Name: "n04000", Reason: "x"}}, 1
		}, "stopped: n00000; n00001; n00002 and 4997 more have failed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := largeFleet(nodes, true)
			p := &f.Pools[0]
			p.Spec.StopAfter, p.Rollout.Failed = 1, nil
			c.change(p)
			for i := range f.Nodes {
				f.Nodes[i].Annotations[api.Reason] = long
			}
			told := map[string]int{}
			for pass := range 3 {
				before := p.Rollout
				d := rollout.Decide(f).Pools[0]
				status, pool := size(t, d.Rollout), size(t, d.Status)
				if status > largest || pool > largest || len(d.Rollout.Failed) != 20 || d.Rollout.FailedCount != nodes || !strings.HasPrefix(d.Rollout.Waiting, c.says) {
					t.Fatalf("pass %d: %d and %d bytes, %d named of %d, %.200s", pass, status, pool, len(d.Rollout.Failed), d.Rollout.FailedCount, d.Rollout.Waiting)
				}
				if pass > 0 && !reflect.DeepEqual(before.Failed, d.Rollout.Failed) {
					t.Errorf("pass %d names others", pass)
				}
				if i := slices.IndexFunc(before.Failed, func(b api.FailedNode) bool { return !named(d.Rollout.Failed, b.Name) }); i >= 0 {
					t.Errorf("%s is not named any more", before.Failed[i].Name)
				}
				for _, e := range d.Events {
					if e.Reason == rollout.EventNodeFailed {
						told[e.Message]++
					}
				}
				p.Rollout = d.Rollout
			}
			for message, times := range told {
				if times > 1 {
					t.Errorf("%d times: %.60s", times, message)
				}
			}
		})
	}
	t.Run("downloads", func(t *testing.T) {
		f := largeFleet(nodes, false)
		all := intstr.FromString("100%")
		f.Pools[0].Spec.ParallelDownloads = &all
		f.Pools[0].Rollout = api.PoolRolloutStatus{Target: "rendered-worker-new", Round: 1}
		for i := range f.Nodes {
			n := &f.Nodes[i]
			n.Annotations[api.DesiredConfig], n.Annotations[api.StateOfNode], n.Annotations[api.Download] = "rendered-worker-old", api.StateDone, "rendered-worker-new"
			n.System.Download = &api.EarlyDownload{Config: "rendered-worker-new", Failure: long, FailedAt: f.Now}
			f.Pools[0].Rollout.Downloads = append(f.Pools[0].Rollout.Downloads, api.NodeDownload{Name: n.Name, Since: v1.Time{Time: f.Now}})
		}
		d := rollout.Decide(f).Pools[0].Rollout
		reasons := 0
		for _, each := range d.Downloads {
			if each.Failure == long {
				reasons++
			}
		}
		if bytes := size(t, d); bytes > largest || len(d.Downloads) != nodes || reasons != 20 {
			t.Errorf("%d bytes, %d downloads, %d with their reasons", bytes, len(d.Downloads), reasons)
		}
	})
}

func named(failed []api.FailedNode, name string) bool {
	return slices.ContainsFunc(failed, func(f api.FailedNode) bool { return f.Name == name })
}

// size returns how many bytes of JSON a value is.
func size(t *testing.T, value any) int {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

// processor reports the processor time of a benchmark, which does not depend on what else the host does.
func processor(b *testing.B) {
	now := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := now()
	b.Cleanup(func() { b.ReportMetric(float64((now()-before).Microseconds())/float64(b.N), "processor-µs/op") })
}

// BenchmarkDecide is the processor time of one decision.
func BenchmarkDecide(b *testing.B) {
	for _, failed := range []bool{false, true} {
		for _, nodes := range []int{1250, 2500, 5000} {
			f := largeFleet(nodes, failed)
			b.Run(fmt.Sprintf("failed=%v/nodes=%d", failed, nodes), func(b *testing.B) {
				processor(b)
				for b.Loop() {
					rollout.Decide(f)
				}
			})
		}
	}
}

// kept is a cache that has many nodes, and one PoolRollout.
type kept struct {
	client.Reader
	nodes []corev1.Node
	pools []api.MachineConfigPool
	check api.PoolRollout
	get   error // of each object
}

func (k *kept) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return k.get
}

func (k *kept) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *corev1.NodeList:
		l.Items = k.nodes
	case *api.MachineConfigPoolList:
		l.Items = k.pools
	case *api.PoolRolloutList:
		l.Items = []api.PoolRollout{k.check}
	}
	return nil
}

// keptPool is a pool of the nodes with the role of its name.
func keptPool(name, config string) (p api.MachineConfigPool) {
	p.Name, p.Spec.Configuration.Name = name, config
	p.Spec.NodeSelector = &v1.LabelSelector{MatchLabels: map[string]string{role(name): ""}}
	return p
}

func keptNodes(nodes int, check string) *kept {
	k := &kept{pools: []api.MachineConfigPool{keptPool("worker", "rendered-worker-new")}}
	k.check.Name, k.check.Spec.Checks.Node = "worker", check
	for i := range nodes {
		n := corev1.Node{ObjectMeta: v1.ObjectMeta{Name: fmt.Sprintf("n%05d", i), ResourceVersion: fmt.Sprint(i + 1), UID: types.UID(fmt.Sprint(i)),
			Labels:      map[string]string{role("worker"): ""},
			Annotations: map[string]string{api.DesiredConfig: "rendered-worker-new", api.CurrentConfig: "rendered-worker-new", api.StateOfNode: api.StateDone}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		k.nodes = append(k.nodes, n)
	}
	return k
}

// BenchmarkFleet is the processor time of looking at the caches once, which each pass of the controller does,
// after one node has changed. With a check, that is evaluated for the nodes that have changed since.
func BenchmarkFleet(b *testing.B) {
	for name, check := range map[string]string{"plain": "", "check": `node.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`} {
		for _, nodes := range []int{1250, 2500, 5000} {
			cached := keptNodes(nodes, check)
			k := &rollout.Kube{Cached: cached, Direct: cached, Now: time.Now}
			b.Run(fmt.Sprintf("%s/nodes=%d", name, nodes), func(b *testing.B) {
				if _, err := k.Fleet(b.Context()); err != nil { // the first time costs more
					b.Fatal(err)
				}
				processor(b)
				for i := 0; b.Loop(); i++ {
					cached.nodes[i%nodes].ResourceVersion = fmt.Sprint(nodes + 1 + i)
					if _, err := k.Fleet(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestCheck: a result about a node holds for that version of the node and that expression only.
func TestCheck(t *testing.T) {
	cached := keptNodes(2, `node.metadata.labels.?gpu.orValue("") == "works"`)
	k := &rollout.Kube{Cached: cached, Direct: cached, Now: time.Now}
	label := func(value string) func() {
		return func() {
			n := cached.nodes[1].DeepCopy()
			n.Labels["gpu"], n.ResourceVersion = value, n.ResourceVersion+"1"
			cached.nodes[1] = *n
		}
	}
	expression := func(text string) func() { return func() { cached.check.Spec.Checks.Node = text } }
	const bad = "spec.checks.node is false"
	for _, step := range []struct {
		name    string
		change  func()
		want    [2]string
		problem bool
	}{
		{"none has it", func() {}, [2]string{bad, bad}, false},
		{"one gets it", label("works"), [2]string{bad, ""}, false},
		{"nothing changes", func() {}, [2]string{bad, ""}, false},
		{"it is lost", label("broken"), [2]string{bad, bad}, false},
		{"another expression", expression("true"), [2]string{"", ""}, false},
		{"a wrong one", expression("node."), [2]string{"", ""}, true},
		{"none", expression(""), [2]string{"", ""}, false},
		{"the wrong label again", expression(`node.metadata.labels.?gpu.orValue("") == "broken"`), [2]string{bad, ""}, false},
	} {
		step.change()
		f, err := k.Fleet(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]string{f.Nodes[0].Check, f.Nodes[1].Check}; got != step.want || (f.Pools[0].CheckProblem != "") != step.problem {
			t.Errorf("%s: %q, problem %q", step.name, got, f.Pools[0].CheckProblem)
		}
	}
}

// TestCheckOfAnotherPool: a node that was moved to another pool, and is still selected by the first one, does not have
// to pass the first one's check. So the move heals it.
func TestCheckOfAnotherPool(t *testing.T) {
	cached := keptNodes(2, `!("example.com/broken" in node.metadata.labels)`)
	cached.pools = append(cached.pools, keptPool("infra", "rendered-infra-other"))
	for _, n := range cached.nodes {
		n.Labels["example.com/broken"] = ""
	}
	cached.nodes[0].Labels[role("infra")] = ""
	k := &rollout.Kube{Cached: cached, Direct: cached, Now: time.Now}
	f, err := k.Fleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.Nodes[0].Check != "" || f.Nodes[1].Check == "" {
		t.Errorf("the check of the node in infra: %q, of the one in worker: %q", f.Nodes[0].Check, f.Nodes[1].Check)
	}
	d := rollout.Decide(f).Pools[0]
	if len(d.Given) != 1 || d.Given[0].Name != "n00000" || d.Given[0].Config != "rendered-infra-other" {
		t.Errorf("infra gives %+v, and waits: %q", d.Given, d.Rollout.Waiting)
	}
}

// TestUnreadableWorkload: a workload of one pool's checks that cannot be read stops that pool, which says so, and no
// other one.
func TestUnreadableWorkload(t *testing.T) {
	cached := keptNodes(2, "")
	cached.pools = append(cached.pools, keptPool("infra", "rendered-infra-other"))
	cached.pools[0].Spec.Configuration.Name = "rendered-worker-next"
	cached.nodes[0].Labels[role("infra")] = ""
	cached.check.Spec.Checks.Workloads = []api.WorkloadReference{{Kind: "Deployment", Namespace: "shop", Name: "front/end"}}
	cached.get = errors.New("invalid resource name")
	k := &rollout.Kube{Cached: cached, Direct: cached, Now: time.Now}
	f, err := k.Fleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := rollout.Decide(f)
	infra, worker := d.Pools[0], d.Pools[1]
	const want = "waits: Deployment shop/front/end is not available: it cannot be read: invalid resource name"
	if len(infra.Given) != 1 || len(worker.Given) > 0 || worker.Rollout.Waiting != want {
		t.Errorf("infra gives %v; worker gives %v, and waits: %q", infra.Given, worker.Given, worker.Rollout.Waiting)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Fleet(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a controller that ends: %v", err)
	}
}

// TestDownByOwnClock: since when a node is not Ready is measured by the controller's own clock, from when it has seen that,
// whatever time others have written.
func TestDownByOwnClock(t *testing.T) {
	cached := keptNodes(1, "")
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	k := &rollout.Kube{Cached: cached, Direct: cached, Now: func() time.Time { return now }}
	ready := func(status corev1.ConditionStatus, written time.Duration) func() {
		return func() {
			cached.nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: v1.Time{Time: now.Add(written)}}}
		}
	}
	for _, step := range []struct {
		name   string
		later  time.Duration
		change func()
		down   time.Duration // since
	}{
		{"ready", 0, func() {}, -1},
		{"by a clock that is behind", time.Minute, ready(corev1.ConditionFalse, -2*time.Hour), 0},
		{"as before", time.Minute, ready(corev1.ConditionUnknown, 2*time.Hour), time.Minute},
		{"without any word", time.Minute, func() { cached.nodes[0].Status.Conditions = nil }, 2 * time.Minute},
		{"after the clock was set back", -time.Hour, func() {}, 0},
		{"ready again", time.Minute, ready(corev1.ConditionTrue, 0), -1},
		{"down again", time.Minute, ready(corev1.ConditionFalse, -time.Hour), 0},
	} {
		now = now.Add(step.later)
		step.change()
		f, err := k.Fleet(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if since := f.Nodes[0].NotReadySince; since.IsZero() != (step.down < 0) || step.down >= 0 && now.Sub(since) != step.down {
			t.Errorf("%s: down since %s, now %s", step.name, since, now)
		}
	}
}
