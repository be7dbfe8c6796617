package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// TestConditions: all conditions of a pool, with their messages: kubectl and dashboards show each of them.
func TestConditions(t *testing.T) {
	pool := func(change func(p *rollout.Pool)) func(m *memory) {
		return func(m *memory) { m.changePool("worker", change) }
	}
	current := pool(func(p *rollout.Pool) { p.Configuration.Name = "rendered-worker-1" })
	without := func(names ...string) func(m *memory) {
		return func(m *memory) {
			for _, name := range names {
				m.change(name, func(n *rollout.Node) { delete(n.Annotations, api.DesiredConfig) })
			}
		}
	}
	failed := func(name string) func(m *memory) {
		return func(m *memory) {
			m.change(name, func(n *rollout.Node) {
				n.Annotations[api.DesiredConfig], n.Annotations[api.StateOfNode], n.Annotations[api.Reason] = "rendered-worker-2", api.StateDegraded, "no space"
			})
		}
	}
	rendering := func(status metav1.ConditionStatus) func(m *memory) {
		return pool(func(p *rollout.Pool) {
			p.Status.Conditions = []metav1.Condition{{Type: api.PoolRenderDegraded, Status: status, Reason: "Rendered", Message: "as rendered"}}
		})
	}
	const waits = "waits for n3, which gets rendered-worker-2 now (at most 1 unavailable at a time)"
	for name, c := range map[string]struct {
		change []func(m *memory)
		want   string
	}{
		"all have it": {[]func(m *memory){current}, `
Updated=True AllNodes: each node has rendered-worker-1
Updating=False AllNodes: 
NodeDegraded=False NoneFailed: 
Degraded=False NoneFailed: `},
		"one has none": {[]func(m *memory){current, without("n0")}, `
Updated=True AllNodes: each node has rendered-worker-1; 1 node is without a desired configuration: n0
Updating=False AllNodes: 
NodeDegraded=False NoneFailed: 
Degraded=False NoneFailed: `},
		"two have none": {[]func(m *memory){without("n0", "n1")}, `
Updated=False NodesChange: ` + waits + `; 2 nodes are without a desired configuration: n0; n1
Updating=True NodesChange: ` + waits + `
NodeDegraded=False NoneFailed: 
Degraded=False NoneFailed: `},
		"nodes failed": {[]func(m *memory){failed("n0")}, `
Updated=False Stopped: stopped: n0 has failed with rendered-worker-2; n0: Degraded: no space
Updating=True Stopped: stopped: n0 has failed with rendered-worker-2; n0: Degraded: no space
NodeDegraded=True NodesOrSettings: n0 Degraded: no space
Degraded=True NodesOrSettings: n0 Degraded: no space`},
		"not rendered": {[]func(m *memory){rendering(api.True)}, `
RenderDegraded=True Rendered: as rendered
Updated=False NodesChange: ` + waits + `
Updating=True NodesChange: ` + waits + `
NodeDegraded=False NoneFailed: 
Degraded=True NotRendered: `},
		"rendered": {[]func(m *memory){rendering(api.False)}, `
RenderDegraded=False Rendered: as rendered
Updated=False NodesChange: ` + waits + `
Updating=True NodesChange: ` + waits + `
NodeDegraded=False NoneFailed: 
Degraded=False NoneFailed: `},
	} {
		t.Run(name, func(t *testing.T) {
			m := small()
			for _, change := range c.change {
				change(m)
			}
			m.changePool("worker", func(p *rollout.Pool) { p.RolloutGeneration = 7 })
			f, _ := m.access("").Fleet(t.Context())
			got := ""
			for _, c := range rollout.Decide(f).Pools[0].Status.Conditions {
				got += fmt.Sprintf("\n%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
			}
			if got != c.want {
				t.Errorf("got%s\nwant%s", got, c.want)
			}
			for _, both := range [][2]string{{api.RolloutComplete, api.PoolUpdated}, {api.RolloutDegraded, api.PoolNodeDegraded}} {
				of := rollout.Decide(f).Pools[0].Rollout.Conditions
				own := meta.FindStatusCondition(of, both[0])
				if is := strings.Contains(got, fmt.Sprintf("\n%s=%s %s:", both[1], own.Status, own.Reason)); !is || own.ObservedGeneration != 7 {
					t.Errorf("the PoolRollout is %+v", own)
				}
			}
		})
	}
}

// TestBlame: while nodes go back to the last good configuration, those that have failed with the other one stay named; a
// node that has left the pool does not.
func TestBlame(t *testing.T) {
	m := small()
	m.changePool("worker", func(p *rollout.Pool) {
		p.Spec.ReturnToLastGood = true
		p.Rollout = api.PoolRolloutStatus{Target: "rendered-worker-1", LastGood: "rendered-worker-1", GivenUp: "rendered-worker-2",
			Failed: []api.FailedNode{{Name: "gone", Reason: "left"}, {Name: "n0", Reason: "as before"}}, FailedCount: 2}
	})
	f, _ := m.access("").Fleet(t.Context())
	s := rollout.Decide(f).Pools[0].Rollout
	if want := []api.FailedNode{{Name: "n0", Reason: "as before"}}; !reflect.DeepEqual(s.Failed, want) || s.FailedCount != 1 {
		t.Errorf("%d failed: %+v", s.FailedCount, s.Failed)
	}
	if !strings.HasSuffix(s.Waiting, "no node has rendered-worker-2 any more; correct the MachineConfigs of the pool") {
		t.Errorf("waits: %q", s.Waiting)
	}
}

// TestEachRequestFails: after a request that fails, a pass makes none that must not come without it. A node that is
// unknown keeps its slot until the API server has said that it is gone.
func TestEachRequestFails(t *testing.T) {
	for fails, want := range map[string]string{
		"":       "fence exists take give show record",
		"fence":  "fence",
		"exists": "fence exists",
		"take":   "fence exists take",
		"give":   "fence exists take give show record",
		"show":   "fence exists take give show record",
		"record": "fence exists take give show record",
	} {
		t.Run("fails: "+fails, func(t *testing.T) {
			m := small()
			m.order = []string{"worker"}
			m.changeRollout("worker", func(p *rollout.Pool) {
				p.Rollout, p.Finalizers = api.PoolRolloutStatus{Target: "rendered-worker-2", Taken: []string{"gone", "n1"}, Round: 1}, []string{rollout.Finalizer}
			})
			m.change("n1", func(n *rollout.Node) { // it is done
				n.Annotations[api.DesiredConfig], n.Annotations[api.CurrentConfig] = "rendered-worker-2", "rendered-worker-2"
				n.System = &api.JudgedSystem{Current: "rendered-worker-2", BootID: n.BootID}
			})
			c := m.access("")
			var calls []string
			c.pause = func(call string) bool {
				if !strings.HasPrefix(call, "after ") {
					calls = append(calls, call)
				}
				return call != fails
			}
			_, err := rollout.Controller{Cluster: c, Decide: rollout.Decide}.Pass(t.Context())
			if got := strings.Join(calls, " "); got != want+" mark mark" || errors.Is(err, errKilled) != (fails != "") {
				t.Errorf("requests: %s, want %s; %v", got, want, err)
			}
		})
	}
}

// TestAtRest: a pass that finds everything as it should be makes no request.
func TestAtRest(t *testing.T) {
	m := small()
	m.changePool("worker", func(p *rollout.Pool) { p.Configuration.Name = "rendered-worker-1" })
	for pass, before := range []bool{true, true, false} {
		requests := m.requests
		if _, err := (rollout.Controller{Cluster: m.access(""), Decide: rollout.Decide}).Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m.requests > requests && !before {
			t.Errorf("pass %d makes %d requests", pass, m.requests-requests)
		}
	}
}

// refusing answers each patch with an error.
type refusing struct {
	client.Writer
	err error
}

func (r refusing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return r.err
}

// TestConflicts: each answer that says that an object is not what it was is a conflict, and no other one is.
func TestConflicts(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewConflict(nodes, "n0", errors.New("changed")), true},
		{apierrors.NewNotFound(nodes, "n0"), true},
		{apierrors.NewAlreadyExists(nodes, "n0"), true},
		{apierrors.NewForbidden(nodes, "n0", errors.New("no right")), false},
	} {
		err := (&rollout.Kube{Writer: refusing{err: c.err}, Now: time.Now}).Give(t.Context(), rollout.Change{Node: rollout.Node{Name: "n0"}, Config: "rendered-worker-1"})
		if err == nil || errors.Is(err, rollout.ErrConflict) != c.want {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}

// denying is a cluster in which somebody's webhook denies each change of some nodes.
type denying struct {
	*access
	nodes  []string
	denied map[string]bool // in earlier passes
}

func (d denying) Fleet(ctx context.Context) (rollout.Fleet, error) {
	f, err := d.access.Fleet(ctx)
	for i := range f.Nodes {
		if d.denied[f.Nodes[i].Name] {
			f.Nodes[i].Refused = "the webhook says no"
		}
	}
	return f, err
}

func (d denying) deny(n rollout.Node) error {
	if !slices.Contains(d.nodes, n.Name) {
		return nil
	}
	d.denied[n.Name] = true
	return fmt.Errorf("node %s: %w", n.Name, rollout.ErrRefused)
}

func (d denying) Fence(ctx context.Context, n rollout.Node, token string) error {
	if err := d.deny(n); err != nil {
		return err
	}
	return d.access.Fence(ctx, n, token)
}

func (d denying) Give(ctx context.Context, c rollout.Change) error {
	if err := d.deny(c.Node); err != nil {
		return err
	}
	return d.access.Give(ctx, c)
}

// TestDenied: a node that nobody may change keeps its slot, and is named with the reason; the others go on.
func TestDenied(t *testing.T) {
	for name, c := range map[string]struct {
		deny  string
		given string // in the end
	}{
		"that is done": {"n1", "n1 n3"},
		"that is next": {"n3", "n1 n2"},
	} {
		t.Run(name, func(t *testing.T) {
			m := small()
			m.order = []string{"worker"}
			two := intstr.FromInt32(2)
			m.changeRollout("worker", func(p *rollout.Pool) {
				p.MaxUnavailable, p.Finalizers = &two, []string{rollout.Finalizer}
				p.Rollout = api.PoolRolloutStatus{Target: "rendered-worker-2", Taken: []string{"n1"}, Round: 1}
			})
			m.change("n1", func(n *rollout.Node) { // it is done
				n.Annotations[api.DesiredConfig], n.Annotations[api.CurrentConfig] = "rendered-worker-2", "rendered-worker-2"
				n.System = &api.JudgedSystem{Current: "rendered-worker-2", BootID: n.BootID}
			})
			d := denying{nodes: []string{c.deny}, denied: map[string]bool{}}
			for range 4 {
				d.access = m.access("")
				if _, err := (rollout.Controller{Cluster: d, Decide: rollout.Decide}).Pass(t.Context()); err != nil && !errors.Is(err, rollout.ErrRefused) {
					t.Fatal(err)
				}
			}
			var given []string
			for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
				if m.nodes[name].Annotations[api.DesiredConfig] == "rendered-worker-2" {
					given = append(given, name)
				}
			}
			s := m.pools["worker"].Rollout
			if got := strings.Join(given, " "); got != c.given || !slices.Contains(s.Taken, c.deny) || !strings.Contains(s.Waiting, c.deny+", which cannot be changed: the webhook says no") {
				t.Errorf("%s have it, %+v", got, s)
			}
			before := m.requests
			d.access = m.access("")
			if _, err := (rollout.Controller{Cluster: d, Decide: rollout.Decide}).Pass(t.Context()); err != nil || m.requests > before {
				t.Errorf("another pass makes %d requests: %v", m.requests-before, err)
			}
		})
	}
}

// slow is a cluster in which each change of a node takes a second.
type slow struct {
	*access
	now *time.Time
}

func (s slow) Give(ctx context.Context, c rollout.Change) error {
	*s.now = s.now.Add(time.Second)
	return s.access.Give(ctx, c)
}

// TestPausedDuringALoop: a pool that is paused while many nodes are given their configuration stops that within seconds.
// Those that were not given it have given their slots back.
func TestPausedDuringALoop(t *testing.T) {
	m := newMemory()
	m.addPool("worker", "rendered-worker-2")
	for i := range 30 {
		m.addNode(fmt.Sprintf("n%02d", i), "rendered-worker-1", map[string]string{role("worker"): ""})
	}
	all := intstr.FromString("100%")
	m.changePool("worker", func(p *rollout.Pool) { p.MaxUnavailable = &all })
	now := m.now
	pass := func() error {
		_, err := rollout.Controller{Cluster: slow{m.access(""), &now}, Decide: rollout.Decide, Now: func() time.Time { return now }}.Pass(t.Context())
		return err
	}
	given := func() (number int) {
		for _, n := range m.nodes {
			if n.Annotations[api.DesiredConfig] == "rendered-worker-2" {
				number++
			}
		}
		return number
	}
	if err := pass(); !errors.Is(err, rollout.ErrConflict) {
		t.Error(err)
	}
	first := given()
	m.changePool("worker", func(p *rollout.Pool) { p.Paused, p.Version = true, m.next() })
	for range 2 {
		if err := pass(); err != nil {
			t.Error(err)
		}
	}
	if s := m.pools["worker"].Rollout; first < 5 || first > 7 || given() != first || len(s.Taken) != first {
		t.Errorf("%d were given it before the pause, %d in all; %d slots", first, given(), len(s.Taken))
	}
	m.changePool("worker", func(p *rollout.Pool) { p.Paused, p.Version = false, m.next() })
	for range 5 {
		_ = pass() // some of them end before all are given it
	}
	if given() != 30 {
		t.Errorf("%d of 30 have it in the end", given())
	}
}

// oneEach is an API server with a pool, and with a Deployment and a DaemonSet of the same name, of which the second is
// not available.
type oneEach struct{ client.Reader }

func (oneEach) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if l, ok := list.(*api.MachineConfigPoolList); ok {
		l.Items = []api.MachineConfigPool{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}
	}
	if l, ok := list.(*api.PoolRolloutList); ok {
		r := api.PoolRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		for _, kind := range []string{"DaemonSet", "Deployment"} {
			r.Spec.Checks.Workloads = append(r.Spec.Checks.Workloads, api.WorkloadReference{Kind: kind, Namespace: "a", Name: "b"})
		}
		l.Items = []api.PoolRollout{r}
	}
	return nil
}

func (oneEach) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		o.Status.DesiredNumberScheduled, o.Status.UpdatedNumberScheduled, o.Status.NumberAvailable = 3, 3, 1
	case *appsv1.Deployment:
		o.Status.UpdatedReplicas, o.Status.AvailableReplicas = 1, 1
	}
	return nil
}

// TestWorkloads: a DaemonSet is not taken for the Deployment of its name.
func TestWorkloads(t *testing.T) {
	f, err := (&rollout.Kube{Cached: oneEach{}, Direct: oneEach{}, Now: time.Now}).Fleet(t.Context())
	want := map[api.WorkloadReference]string{
		{Kind: "DaemonSet", Namespace: "a", Name: "b"}:  "2 pods missing",
		{Kind: "Deployment", Namespace: "a", Name: "b"}: "",
	}
	if err != nil || !reflect.DeepEqual(f.Workloads, want) {
		t.Errorf("%v, %v", f.Workloads, err)
	}
}

// TestCaches: what is kept of a NodeSystem is what decisions use.
func TestCaches(t *testing.T) {
	s := &api.NodeSystem{ObjectMeta: metav1.ObjectMeta{Name: "n0", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "agent"}}}}
	s.Status = api.NodeSystemStatus{Config: api.ConfigNames{Current: "rendered-worker-1"}, BootID: "boot", AgentVersion: "1", Step: "rest",
		KernelArguments: api.KernelArguments{Missing: []string{"audit=1"}, Excess: []string{"quiet"}},
		Proof:           &api.Proof{OK: false, Differences: []string{"one", "two"}}, Download: &api.EarlyDownload{Config: "rendered-worker-2"}}
	want := &api.NodeSystem{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}
	want.Status = api.NodeSystemStatus{Config: s.Status.Config, BootID: "boot", AgentVersion: "1", Download: s.Status.Download,
		KernelArguments: api.KernelArguments{Missing: []string{"audit=1"}}, Proof: &api.Proof{Differences: []string{"one"}}}
	for kind, of := range rollout.Caches() {
		if _, systems := kind.(*api.NodeSystem); !systems {
			continue
		}
		if kept, err := of.Transform(s); err != nil || !reflect.DeepEqual(kept, want) {
			t.Errorf("%+v, %v", kept, err)
		}
	}
}

// TestExpressionsSeeWhatIsKept: an expression about a field of a Node compiles exactly if the controllers keep that field.
func TestExpressionsSeeWhatIsKept(t *testing.T) {
	whole := &corev1.Node{}
	fill(reflect.ValueOf(whole).Elem())
	var kept any
	for kind, of := range rollout.Caches() {
		if _, nodes := kind.(*corev1.Node); nodes {
			kept, _ = of.Transform(whole.DeepCopy())
		}
	}
	before, after := leaves(t, whole), leaves(t, kept)
	ignored := []string{"spec.podPreemptionPolicy", "spec.configSource", "spec.externalID", "metadata.namespace", "metadata.selfLink", "metadata.generateName", "status.daemonEndpoints",
		"metadata.deletionGracePeriodSeconds", "status.nodeInfo.swap", "status.nodeInfo.kubeProxyVersion", "status.nodeInfo.runningInUserNamespace", "status.nodeInfo.runtimeInfo"}
	for path := range before {
		if slices.ContainsFunc(ignored, func(i string) bool { return strings.HasPrefix(path, i) }) {
			continue
		}
		_, err := rollout.CompileCheck("has(node." + path + ")")
		if list, field, in := strings.Cut(path, "[]."); in {
			_, err = rollout.CompileCheck("node." + list + ".exists(e, has(e." + field + "))")
		}
		if after[path] != (err == nil) {
			t.Errorf("%s is kept: %v; an expression about it: %v", path, after[path], err)
		}
	}
	if len(after) < 20 || !after["status.conditions[].type"] || after["status.images[].sizeBytes"] {
		t.Errorf("what is kept: %v", after)
	}
}

// fill gives each field of a value a value.
func fill(v reflect.Value) {
	switch value := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*value = resource.MustParse("1")
		return
	case *metav1.Time:
		*value = metav1.Now()
		return
	case *metav1.FieldsV1:
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("a")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	}
}

// leaves returns the paths of an object's fields that are no objects, of the first element of each list.
func leaves(t *testing.T, object any) map[string]bool {
	t.Helper()
	document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for name, member := range v {
				walk(strings.TrimPrefix(path+"."+name, "."), member)
			}
		case []any:
			if _, objects := v[0].(map[string]any); objects {
				walk(path+"[]", v[0])
				return
			}
			out[path] = true
		case nil:
		default:
			out[path] = true
		}
	}
	walk("", document)
	return out
}

// idle is a manager that only has clients.
type idle struct{ manager.Manager }

func (idle) GetClient() client.Client                       { return idleClient{} }
func (idle) GetAPIReader() client.Reader                    { return nil }
func (idle) GetEventRecorder(string) recorder.EventRecorder { return nil }

type idleClient struct{ client.Client }

func (idleClient) Status() client.SubResourceWriter { return nil }

// TestSetupTwice: metrics that cannot be registered are an error before anything runs.
func TestSetupTwice(t *testing.T) {
	registry := prometheus.NewRegistry()
	other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pivot_pool_nodes", Help: "of another program"})
	registry.MustRegister(other)
	if err := rollout.Setup(idle{}, rollout.Options{Metrics: registry}); err == nil || !strings.Contains(err.Error(), "pivot_pool_nodes") {
		t.Error(err)
	}
}

// TestEachFailureIsAnEvent: nodes that fail at the same time are an event each, and once.
func TestEachFailureIsAnEvent(t *testing.T) {
	m := small()
	three := intstr.FromInt32(3)
	m.changeRollout("worker", func(p *rollout.Pool) { p.MaxUnavailable, p.Spec.StopAfter = &three, 5 })
	m.pass(t)
	for _, name := range m.pools["worker"].Rollout.Taken {
		m.change(name, func(n *rollout.Node) { n.Annotations[api.StateOfNode] = api.StateDegraded })
	}
	failed := func() (number int) {
		f, _ := m.access("").Fleet(t.Context())
		for _, e := range rollout.Decide(f).Pools[0].Events {
			if e.Reason == rollout.EventNodeFailed {
				number++
			}
		}
		return number
	}
	if n := failed(); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
	m.pass(t)
	if n := failed(); n != 0 {
		t.Errorf("%d more events of the same failures", n)
	}
}
