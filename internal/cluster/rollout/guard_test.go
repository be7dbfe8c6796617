package rollout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/controlplane"
)

const (
	autoscaler = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	karpenter  = "karpenter.sh/do-not-disrupt"
	medik8s    = "remediation.medik8s.io/exclude-from-remediation"
	capi       = "cluster.x-k8s.io/skip-remediation"
)

// TestGuard: at a real API server, with the rights of deploy/fleet, a node that gets a configuration is guarded. What
// somebody else had set is there again afterwards. Its taints of others stay.
func TestGuard(t *testing.T) {
	w := newPlane(t, 2)
	w.ControlPlane.ApplyFile("../../../deploy/fleet/rbac-machines.yaml")
	w.kind("cluster.x-k8s.io", "v1beta1", "Machine", "Namespaced")
	w.kind("cluster.x-k8s.io", "v1beta1", "MachineHealthCheck", "Namespaced")
	w.kind("remediation.medik8s.io", "v1alpha1", "NodeHealthCheck", "Cluster")
	for name, marks := range map[string]map[string]any{"m0": {}, "m1": {capi: "mine"}} {
		w.ControlPlane.Apply(map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": map[string]any{"name": name, "namespace": "default", "annotations": marks}})
	}
	w.ControlPlane.Apply(map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineHealthCheck", "metadata": map[string]any{"name": "hasty", "namespace": "default"},
		"spec": map[string]any{"selector": map[string]any{}, "unhealthyConditions": []any{map[string]any{"type": "Ready", "status": "Unknown", "timeout": "1m"}, map[string]any{"type": "Ready", "status": "False", "timeout": "5m0s"}}}})
	w.ControlPlane.Apply(map[string]any{"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "metadata": map[string]any{"name": "workers"},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{role("worker"): ""}}, "unhealthyConditions": []any{map[string]any{"type": "Ready", "status": "False", "duration": "300s"}}}})
	change := func(name, body string) {
		t.Helper()
		if err := w.Patch(t.Context(), &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: name}}, mergePatch(body)); err != nil {
			t.Fatal(err)
		}
	}
	change("n0", `{"metadata":{"annotations":{"`+autoscaler+`":"false","cluster.x-k8s.io/machine":"m0","cluster.x-k8s.io/cluster-namespace":"default"}},"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`)
	change("n1", `{"metadata":{"annotations":{"`+karpenter+`":"true","cluster.x-k8s.io/machine":"m1","cluster.x-k8s.io/cluster-namespace":"default"},"labels":{"`+medik8s+`":"true"}}}`)
	k := w.kube()
	now := time.Now()
	k.Now = func() time.Time { return now }
	controlplane.Eventually(t, "the rights", func(ctx context.Context) bool { _, err := k.Fleet(ctx); return err == nil })
	works := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	marks := func(i int) string {
		t.Helper()
		n := w.fleet(k).Nodes[i]
		m := &unstructured.Unstructured{}
		m.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Machine"})
		works(w.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "m" + n.Name[1:]}, m))
		var taints []string
		for _, taint := range n.Taints {
			if taint.Key != corev1.TaintNodeNotReady { // of the API server
				taints = append(taints, taint.Key)
			}
		}
		return strings.Join([]string{n.Annotations[autoscaler], n.Annotations[karpenter], n.Labels[medik8s], m.GetAnnotations()[capi], strings.Join(taints, " ")}, ",")
	}
	is := func(when, first, second string) {
		t.Helper()
		if got := marks(0); got != first {
			t.Errorf("%s: n0 has %s, want %s", when, got, first)
		}
		if got := marks(1); got != second {
			t.Errorf("%s: n1 has %s, want %s", when, got, second)
		}
	}
	each := func(do func(n rollout.Node) error) {
		t.Helper()
		for i := range 2 {
			works(do(w.fleet(k).Nodes[i]))
		}
	}
	controlplane.Eventually(t, "the health checks", func(context.Context) bool {
		now = now.Add(2 * time.Minute)
		checks := w.fleet(k).HealthChecks
		return len(checks) == 2 && checks[0].After == time.Minute && checks[1].After == 5*time.Minute && checks[1].Selector.String() == role("worker")+"="
	})
	each(func(n rollout.Node) error { return k.Mark(t.Context(), rollout.Marked{Node: n, Pending: true}) })
	is("marked", "false,,,,a "+rollout.Pending, ",true,true,mine,"+rollout.Pending)
	for range 2 { // the second time, the record is there
		each(func(n rollout.Node) error {
			return k.Give(t.Context(), rollout.Change{Node: n, Config: "rendered-worker-2", ForceAfter: 30 * time.Minute})
		})
		if after := w.fleet(k).Nodes[0].Annotations[api.ForceDrainAfter]; after != "30m0s" {
			t.Errorf("the drain is forced after %q", after)
		}
	}
	is("given", "true,true,true,"+rollout.Guarded+",a "+rollout.Pending, "true,true,true,mine,"+rollout.Pending)
	each(func(n rollout.Node) error { return k.Fence(t.Context(), n, "7") })
	is("released", "true,true,true,"+rollout.Guarded+",a", "true,true,true,mine,")
	if text := w.fleet(k).Nodes[0].Annotations[rollout.Guarded]; !strings.Contains(text, now.Add(10*time.Minute).Format("2006-01-02T15:04")) {
		t.Errorf("n0 is guarded: %s", text)
	}
	change("n1", `{"metadata":{"annotations":{"`+autoscaler+`":"maybe"}}}`) // by somebody, meanwhile
	each(func(n rollout.Node) error { return k.Mark(t.Context(), rollout.Marked{Node: n, Unguard: true}) })
	is("ended", "false,,,,a", "maybe,true,true,mine,")
	if _, guarded := w.fleet(k).Nodes[0].Annotations[rollout.Guarded]; guarded {
		t.Error("the record stays")
	}
}

// TestMarksDenied: who forbids the marks forbids nothing else.
func TestMarksDenied(t *testing.T) {
	w := newPlane(t, 1)
	w.ControlPlane.Apply(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": "no-taints"}, "spec": map[string]any{
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"UPDATE"}, "resources": []any{"nodes"}}}},
		"validations":      []any{map[string]any{"expression": "object.spec.?taints.orValue([]) == oldObject.spec.?taints.orValue([])"}}}})
	w.ControlPlane.Apply(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": "no-taints"},
		"spec": map[string]any{"policyName": "no-taints", "validationActions": []any{"Deny"}}})
	k, attempt := w.kube(), 0
	controlplane.Eventually(t, "the rights and the policy", func(ctx context.Context) bool {
		f, err := k.Fleet(ctx)
		if err != nil {
			return false
		}
		attempt++ // another taint each time: one that is there already is no change, and is not refused
		taint := fmt.Sprintf(`{"spec":{"taints":[{"key":"a%d","effect":"NoSchedule"}]}}`, attempt)
		refused := w.Patch(ctx, &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: "n0"}}, mergePatch(taint)) != nil
		return refused && len(f.Nodes) == 1
	})
	if err := k.Mark(t.Context(), rollout.Marked{Node: w.fleet(k).Nodes[0], Pending: true}); err != nil {
		t.Error(err)
	}
	n := w.fleet(k).Nodes[0]
	if n.Refused != "" || slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == rollout.Pending }) {
		t.Errorf("%+v", n)
	}
	if err := k.Give(t.Context(), rollout.Change{Node: n, Config: "rendered-worker-2"}); err != nil {
		t.Error(err)
	}
}

// kind adds a kind of somebody else.
func (w plane) kind(group, version, kind, scope string) {
	w.Helper()
	plural := strings.ToLower(kind) + "s"
	w.ControlPlane.Apply(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + group,
		"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, of a test"}},
		"spec": map[string]any{"group": group, "scope": scope, "names": map[string]any{"kind": kind, "plural": plural},
			"versions": []any{map[string]any{"name": version, "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}})
}

// patches is an API server that keeps one node's annotations.
type patches struct {
	client.Client
	n rollout.Node
}

func (p *patches) Patch(_ context.Context, _ client.Object, patch client.Patch, _ ...client.PatchOption) error {
	text, err := patch.Data(nil)
	if err != nil {
		return err
	}
	var o struct {
		Metadata struct{ Annotations, Labels map[string]*string }
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	for name, value := range o.Metadata.Annotations {
		if delete(p.n.Annotations, name); value != nil {
			p.n.Annotations[name] = *value
		}
	}
	for name, value := range o.Metadata.Labels {
		if delete(p.n.Labels, name); value != nil {
			p.n.Labels[name] = *value
		}
	}
	return nil
}

// TestMarksOfOthers: what somebody else has set of the marks is there again, also if that was during the guard; what somebody
// else has removed stays away.
func TestMarksOfOthers(t *testing.T) {
	for name, c := range map[string]struct{ before, during, after string }{
		"none":               {"", "true", ""},
		"before":             {"false", "true", "false"},
		"before, as ours":    {"true", "true", "true"},
		"changed meanwhile":  {"", "false", "false"},
		"changed afterwards": {"false", "never", "never"},
		"removed meanwhile":  {"false", "", ""},
	} {
		for _, mark := range []string{autoscaler, karpenter, medik8s} {
			p := &patches{n: rollout.Node{Name: "n0", Annotations: map[string]string{}, Labels: map[string]string{}}}
			set := func(value string) {
				of := p.n.Annotations
				if mark == medik8s {
					of = p.n.Labels
				}
				if delete(of, mark); value != "" {
					of[mark] = value
				}
			}
			k := &rollout.Kube{Writer: p, Now: time.Now}
			give := func(config string) {
				if err := k.Give(t.Context(), rollout.Change{Node: p.n, Config: config}); err != nil {
					t.Fatal(err)
				}
			}
			set(c.before)
			give("rendered-worker-2")
			set(c.during)
			give("rendered-worker-3")
			if err := k.Mark(t.Context(), rollout.Marked{Node: p.n, Unguard: true}); err != nil {
				t.Fatal(err)
			}
			if got := p.n.Annotations[mark] + p.n.Labels[mark]; got != c.after {
				t.Errorf("%s: %s is %q, want %q", name, mark, got, c.after)
			}
		}
	}
}
