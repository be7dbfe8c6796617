package rollout

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What cluster-api writes on its Nodes, and what its MachineHealthChecks look for on a Machine, whatever its value is
// (cluster-api, api/core/v1beta2).
const (
	machineOfNode   = "cluster.x-k8s.io/machine"
	namespaceOfNode = "cluster.x-k8s.io/cluster-namespace"
	skipRemediation = "cluster.x-k8s.io/skip-remediation"
)

// skipRemediation has cluster-api leave the Machine of a node alone, or no longer. Our mark has a value of ours, so that one
// of somebody else stays. Where there are no Machines in this cluster, or no rights to them, nothing is done: a rollout does
// not depend on it.
func (k *Kube) skipRemediation(ctx context.Context, n Node, skip bool) {
	name, namespace := n.Annotations[machineOfNode], n.Annotations[namespaceOfNode]
	if name == "" || namespace == "" {
		return
	}
	m := &v1.PartialObjectMetadata{}
	for _, version := range []string{"v1beta2", "v1beta1"} {
		m.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: version, Kind: "Machine"})
		if k.Direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, m) == nil {
			break
		}
	}
	value, marked := m.Annotations[skipRemediation]
	if m.ResourceVersion == "" || marked == skip || marked && value != Guarded {
		return
	}
	var mark any
	if skip {
		mark = Guarded
	}
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": m.ResourceVersion, "annotations": map[string]any{skipRemediation: mark}}}
	_ = k.Writer.Patch(ctx, m, mergePatch(patch))
}

// HealthCheck is an object for which somebody else deletes or reboots nodes that are not Ready for some time.
type HealthCheck struct {
	Name     string // with its kind
	After    time.Duration
	Selector labels.Selector // of nodes
	Machines bool            // it is about nodes of cluster-api's Machines, whichever they are
}

// healthCheck is what is read of such an object: a MachineHealthCheck of cluster-api, of either version, or a
// NodeHealthCheck of medik8s.
type healthCheck struct {
	Spec struct {
		Selector            v1.LabelSelector `json:"selector"`
		UnhealthyConditions []unhealthy      `json:"unhealthyConditions"`
		Checks              struct {
			UnhealthyNodeConditions []unhealthy `json:"unhealthyNodeConditions"`
		} `json:"checks"`
	} `json:"spec"`
}

type unhealthy struct {
	Type           string      `json:"type"`
	Duration       v1.Duration `json:"duration"`       // medik8s
	Timeout        v1.Duration `json:"timeout"`        // cluster-api, v1beta1
	TimeoutSeconds int64       `json:"timeoutSeconds"` // cluster-api, v1beta2
}

// readHealthChecks reads the health checks of others, once a minute. Kinds that do not exist, or may not be read, have none.
func (k *Kube) readHealthChecks(ctx context.Context, now time.Time) []HealthCheck {
	if now.Sub(k.healthChecksAt).Abs() < longest {
		return k.healthChecks
	}
	k.healthChecks, k.healthChecksAt = nil, now
	for _, kind := range []schema.GroupVersionKind{
		{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineHealthCheck"},
		{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "MachineHealthCheck"},
		{Group: "remediation.medik8s.io", Version: "v1alpha1", Kind: "NodeHealthCheck"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if kind.Version == "v1beta1" && len(k.healthChecks) > 0 || k.Direct.List(ctx, list) != nil {
			continue
		}
		for i := range list.Items {
			var h healthCheck
			if runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &h) == nil {
				k.healthChecks = append(k.healthChecks, h.read(kind.Kind, list.Items[i].GetName()))
			}
		}
	}
	return k.healthChecks
}

// read returns a health check with the shortest time after which a node that is not Ready is unhealthy.
func (h healthCheck) read(kind, name string) HealthCheck {
	out := HealthCheck{Name: kind + " " + name, Machines: kind == "MachineHealthCheck", Selector: labels.Nothing()}
	for _, c := range append(h.Spec.UnhealthyConditions, h.Spec.Checks.UnhealthyNodeConditions...) {
		after := max(c.Duration.Duration, c.Timeout.Duration, time.Duration(c.TimeoutSeconds)*time.Second)
		if c.Type == "Ready" && (out.After == 0 || after < out.After) {
			out.After = after
		}
	}
	if s, err := v1.LabelSelectorAsSelector(&h.Spec.Selector); err == nil && !out.Machines {
		out.Selector = s
	}
	return out
}

// impatient says which health check of others has less patience than nodes of the pool have needed to come back; "" if none
// has.
func (v *view) impatient(checks []HealthCheck) string {
	away := v.status.LongestAbsence.Duration
	for _, h := range checks {
		if h.After == 0 || away <= h.After {
			continue
		}
		for i := range v.members {
			m := &v.members[i]
			if h.Selector.Matches(labels.Set(m.Labels)) || h.Machines && m.Annotations[machineOfNode] != "" {
				return fmt.Sprintf("; the %s acts on nodes that are not Ready for %s, and one of this pool was away for %s: give it more time", h.Name, h.After, away)
			}
		}
	}
	return ""
}

// seeAbsence records the longest time for which a node with a slot was not Ready.
func (v *view) seeAbsence() {
	for i := range v.members {
		if m := &v.members[i]; m.taken && m.Away > v.status.LongestAbsence.Duration {
			v.status.LongestAbsence.Duration = m.Away.Round(time.Second)
		}
	}
}
