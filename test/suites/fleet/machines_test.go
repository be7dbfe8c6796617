package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/simnodes"
)

// Now implements simnodes.Cluster.
func (f *simulated) Now() time.Time { return f.began.Add(time.Duration(f.ticks) * time.Minute) }

// Node implements simnodes.Cluster. A machine that takes a step sees what it has changed.
func (f *simulated) Node(name string) *rollout.Node {
	if f.draft != nil && f.draft.Name == name {
		return f.draft
	}
	return f.nodes[name]
}

// Change implements simnodes.Cluster. It is only called within act.
func (f *simulated) Change(_ string, change func(n *rollout.Node)) { change(f.draft) }

// act calls a function that changes a node, and sends what it has changed, unless that is still done for the last
// one. f.mu is held.
func (f *simulated) act(ctx context.Context, name string, change func()) {
	before := f.nodes[name]
	if _, writing := f.writing[name]; before == nil || writing {
		return
	}
	after := *before
	after.Annotations = maps.Clone(before.Annotations)
	f.draft = &after
	change()
	f.draft = nil
	if reflect.DeepEqual(before, &after) {
		return
	}
	skew := f.machines[name].Skew()
	if skew != 0 && reports(before, &after) {
		f.count.wrong++
	}
	f.writing[name] = 0
	kept := *before
	kept.System = after.System // nobody else writes it
	f.nodes[name] = &kept
	f.writes <- func() {
		version, err := f.send(ctx, before, &after, skew)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.writing[name] = version
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			f.fault("%v", err)
		}
		f.sees(name)
	}
}

// sees lets a machine go on if it sees what it wrote, or is deleted.
func (f *simulated) sees(name string) {
	version, writing := f.writing[name]
	n := f.nodes[name]
	if writing && (n == nil || version > 0 && number(n.Version) >= version) {
		delete(f.writing, name)
	}
}

// number returns a resourceVersion, which is compared as a number.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("the resourceVersion %q: %v", version, err))
	}
	return n
}

// write sends something else than the change of a node.
func (f *simulated) write(send func() error) {
	f.writes <- func() {
		if err := send(); err != nil && f.Context().Err() == nil && !apierrors.IsNotFound(err) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.fault("%v", err)
		}
	}
}

// send sends the changes of a node in the order of a real one: kubelet's, the state of the system, the agent's word.
// It returns the last version.
func (f *simulated) send(ctx context.Context, before, after *rollout.Node, skew time.Duration) (uint64, error) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: after.Name}}
	n.ResourceVersion = before.Version
	if reports(before, after) {
		status := map[string]any{"conditions": conditions(after, skew), "nodeInfo": map[string]any{"bootID": after.BootID}}
		if err := f.Client.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, text(map[string]any{"status": status}))); err != nil {
			return 0, err
		}
	}
	if before.System != after.System {
		if err := f.sendSystem(ctx, after); err != nil {
			return 0, err
		}
	}
	if annotations := changed(before.Annotations, after.Annotations); len(annotations) > 0 || before.Cordoned != after.Cordoned {
		patch := map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": map[string]any{"unschedulable": after.Cordoned}}
		if err := f.merge(ctx, n, patch); err != nil {
			return 0, err
		}
	}
	return number(n.ResourceVersion), nil
}

// reports reports whether kubelet has something to report.
func reports(before, after *rollout.Node) bool {
	return before.Problem != after.Problem || before.BootID != after.BootID
}

func (f *simulated) sendSystem(ctx context.Context, n *rollout.Node) error {
	s := api.NodeSystem{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	status := api.NodeSystemStatus{Config: api.ConfigNames{Current: n.System.Current, Desired: n.Annotations[api.DesiredConfig]}, BootID: n.System.BootID,
		AgentVersion: "simulated", KernelArguments: api.KernelArguments{Missing: append([]string{}, n.System.Missing...), Excess: []string{}}}
	return f.Client.Status().Patch(ctx, &s, client.RawPatch(types.MergePatchType, text(map[string]any{"status": status})))
}

// conditions returns what kubelet reports, by its own clock.
func conditions(n *rollout.Node, skew time.Duration) []corev1.NodeCondition {
	now := metav1.NewTime(time.Now().Add(skew))
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: now, LastHeartbeatTime: now}
	if n.Problem != "" {
		c.Status = corev1.ConditionFalse
	}
	return []corev1.NodeCondition{c}
}

// changed returns the annotations that differ; nil is one that is removed.
func changed(before, after map[string]string) map[string]any {
	out := map[string]any{}
	for name, value := range after {
		if old, ok := before[name]; !ok || old != value {
			out[name] = value
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			out[name] = nil
		}
	}
	return out
}

func text(o any) []byte {
	out, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return out
}

// join adds a machine, with its Node and NodeSystem.
func (f *simulated) join(ctx context.Context, name, pool string) {
	labels := map[string]string{roleOf(pool): "", "topology.kubernetes.io/zone": strconv.Itoa(f.rand.IntN(3))}
	if pool == "master" {
		labels[roleOf("control-plane")] = ""
	}
	n := &rollout.Node{Name: name, Labels: labels, BootID: name + "-0", System: &api.JudgedSystem{Current: "old", BootID: name + "-0"},
		Annotations: map[string]string{api.DesiredConfig: "old", api.CurrentConfig: "old", api.StateOfNode: api.StateDone}}
	f.machines[name] = simnodes.New(name, f, "old", rand.New(rand.NewPCG(f.rand.Uint64(), 1)), 5)
	f.write(func() error {
		if err := f.Create(ctx, &api.NodeSystem{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
		if err := f.sendSystem(ctx, n); err != nil {
			return err
		}
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: n.Annotations}}
		object.Status.Conditions, object.Status.NodeInfo.BootID = conditions(n, 0), n.BootID
		return f.Create(ctx, object)
	})
}

// watch calls a function for each event of a kind, in their order, with f.mu held.
func (f *simulated) watch(ctx context.Context, list client.ObjectList, seen func(kind watch.EventType, o client.Object)) {
	for version := "0"; ctx.Err() == nil; {
		w, err := f.watcher.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
		if err != nil {
			if ctx.Err() == nil {
				f.mu.Lock()
				f.fault("%v", err)
				f.mu.Unlock()
			}
			return
		}
		for event := range w.ResultChan() {
			f.mu.Lock()
			if o, ok := event.Object.(client.Object); ok {
				version, f.last = o.GetResourceVersion(), time.Now()
				seen(event.Type, o)
			} else {
				f.fault("a watch says %v", event.Object)
			}
			f.mu.Unlock()
		}
	}
}

func (f *simulated) watchNodes(ctx context.Context) {
	f.watch(ctx, &corev1.NodeList{}, func(kind watch.EventType, o client.Object) {
		name := o.GetName()
		if kind == watch.Deleted {
			delete(f.nodes, name)
			delete(f.machines, name)
		} else {
			f.seen(o.(*corev1.Node))
		}
		f.sees(name)
		f.check()
	})
}

// seen takes over the newest state of a node, and checks what it was given.
func (f *simulated) seen(o *corev1.Node) {
	n := &rollout.Node{Name: o.Name, Version: o.ResourceVersion, Labels: o.Labels, Annotations: o.Annotations, Cordoned: o.Spec.Unschedulable, Taints: o.Spec.Taints, BootID: o.Status.NodeInfo.BootID}
	if o.Status.Conditions[0].Status != corev1.ConditionTrue {
		n.Problem = "is not Ready"
	}
	before := f.nodes[o.Name]
	f.nodes[o.Name] = n
	if before == nil {
		n.System = &api.JudgedSystem{Current: "old", BootID: n.BootID}
		return
	}
	n.System = before.System
	if number(n.Version) == f.restored[n.Name] {
		return
	}
	f.countWrites(before, n)
	desired := n.Annotations[api.DesiredConfig]
	if hasLeft := func(n *rollout.Node) bool {
		return n.Annotations[api.CurrentConfig] == desired && n.Annotations[api.StateOfNode] == api.StateDegraded
	}; hasLeft(before) && hasLeft(n) && before.Annotations[api.FailedConfig] == desired && n.Annotations[api.FailedConfig] == "" {
		f.count.given++
		f.again[n.Name]++
	}
	if desired != before.Annotations[api.DesiredConfig] {
		f.count.given++
		given := f.given[o.Name]
		passed := len(given) > 0 && strings.HasPrefix(before.Annotations[api.CannotStart], given[len(given)-1]+" ")
		if passed { // that could not start, and was not begun
			given = given[:len(given)-1]
		}
		if !passed || desired != f.machines[o.Name].Running {
			given = append(given, desired)
		}
		f.given[o.Name] = given
		if before.Cordoned && before.Annotations[api.CordonedFor] == "" && desired != f.machines[o.Name].Running {
			f.fault("%s is given %s although it is cordoned", o.Name, desired)
		}
	}
}

// countWrites counts what the controllers have written on a node.
func (f *simulated) countWrites(before, now *rollout.Node) {
	marked := func(n *rollout.Node) bool {
		return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == rollout.Pending })
	}
	if marked(now) != marked(before) {
		f.written[fmt.Sprintf("taint %t", marked(now))]++
	}
	for _, name := range []string{api.DesiredConfig, api.Download, rollout.Guarded, rollout.Released} {
		if now.Annotations[name] != before.Annotations[name] {
			f.written[name]++
		}
	}
}

func (f *simulated) watchPools(ctx context.Context) {
	f.watch(ctx, &api.MachineConfigPoolList{}, func(_ watch.EventType, o client.Object) {
		name := o.(*api.MachineConfigPool).Spec.Configuration.Name
		p := f.pools[o.GetName()]
		if p.configuration == name {
			return
		}
		p.configuration = name
		if bad := f.rand.IntN(3); !p.configurations[name] && len(p.configurations) > 1 && !f.calm && bad < 2 {
			for node, n := range f.nodes {
				if poolOf(n) == o.GetName() && f.rand.IntN(20) == 0 {
					if bad == 0 {
						f.machines[node].Fails(name)
					} else {
						f.machines[node].Kills(name)
					}
				}
			}
		}
		p.configurations[name] = true
	})
}

func (f *simulated) watchRollouts(ctx context.Context) {
	f.watch(ctx, &api.PoolRolloutList{}, func(_ watch.EventType, o client.Object) {
		p, status := f.pools[o.GetName()], o.(*api.PoolRollout).Status
		if status.Target != p.rollout.Target {
			p.targets++
		}
		p.rollout = status
	})
}
