package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/internal/problem"
	"machine-pivot/internal/window"
)

// checkPool checks what the schema of a pool cannot: its selectors. That of nodes must not be empty: it would
// match each node of the cluster. Of maxUnavailable it says what the function does that uses it.
func checkPool(object []byte) (report problem.Report) {
	var p api.MachineConfigPool
	if err := json.Unmarshal(object, &p); err != nil {
		report.Fail("$", "it is no MachineConfigPool: %v", err)
		return report
	}
	checkNodeSelector(&report, p.Name, p.Spec.NodeSelector)
	checkSelector(&report, "$.spec.machineConfigSelector", p.Spec.MachineConfigSelector, "MachineConfig, also those of other roles")
	const many = 1000 // nodes, of which each percentage from 1% is more than one
	m := p.Spec.MaxUnavailable
	switch most, err := api.MostUnavailable(p.Name, m, many); {
	case err != nil:
		report.Warn("$.spec.maxUnavailable", "%v", err)
	case m != nil && most == 1 && m.String() != "1":
		report.Warn("$.spec.maxUnavailable", "with %s, one node of the pool %s at a time is changed; to stop a rollout, set spec.paused", m.String(), p.Name)
	}
	return report
}

// checkNodeSelector checks which nodes a pool has, or will have: of a PoolRollout, a pool is made.
func checkNodeSelector(report *problem.Report, pool string, s *metav1.LabelSelector) {
	checkSelector(report, "$.spec.nodeSelector", s, "node of the cluster")
	if label := selfGiven(s); label != "" {
		report.Warn("$.spec.nodeSelector", "a node may give itself the label %s, or remove it, and so get the MachineConfigs of the pool: use a label with the prefix %s, or node-role.kubernetes.io/%s", label, corev1.LabelNamespaceNodeRestriction+"/", pool)
	}
}

// selfGiven returns a label that decides whether a selector selects a node, and that the node may give itself or remove. The
// API server lets kubelet write each label of its Node but those of Kubernetes' own namespaces, among which it has some of
// its own (plugin NodeRestriction). It returns "" if there is none, or if the selector also wants a label that only an
// administrator can give because of its prefix.
func selfGiven(s *metav1.LabelSelector) (label string) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	wants, _ := selector.Requirements()
	for _, r := range wants {
		without := r.Operator() == selection.NotIn || r.Operator() == selection.DoesNotExist
		if namespace, _, _ := strings.Cut(r.Key(), "/"); !without && within(namespace, corev1.LabelNamespaceNodeRestriction) {
			return ""
		}
		if label == "" && ofKubelet(r.Key()) {
			label = r.Key()
		}
	}
	return label
}

// ofKubelet reports whether kubelet may write a label of its Node.
func ofKubelet(label string) bool {
	namespace, _, _ := strings.Cut(label, "/")
	if !strings.Contains(label, "/") {
		return true
	}
	own := []string{
		corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
		corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}
	protected := within(namespace, "kubernetes.io") || within(namespace, "k8s.io")
	return !protected || slices.Contains(own, label) || within(namespace, "kubelet.kubernetes.io") || within(namespace, "node.kubernetes.io")
}

// within reports whether a namespace of labels is a domain, or below it.
func within(namespace, domain string) bool {
	return namespace == domain || strings.HasSuffix(namespace, "."+domain)
}

// checkSelector checks a selector of labels. everything is what an empty one would match.
func checkSelector(report *problem.Report, path string, s *metav1.LabelSelector, everything string) {
	if s == nil {
		return // it matches nothing
	}
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		report.Fail(path, "it is empty, and would match each %s", everything)
		return
	}
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		report.Fail(path, "%v", err)
	}
}

// checkRollout checks what the schema of a rollout cannot: the window and the conditions of health.
func checkRollout(object []byte) (report problem.Report) {
	var r api.PoolRollout
	if err := json.Unmarshal(object, &r); err != nil {
		report.Fail("$", "it is no PoolRollout: %v", err)
		return report
	}
	checkNodeSelector(&report, r.Name, r.Spec.NodeSelector)
	if r.Spec.Window != "" {
		if _, err := window.Parse(r.Spec.Window, time.UTC); err != nil {
			report.Fail("$.spec.window", "%v", err)
		}
	}
	if r.Spec.Checks.Node != "" {
		if _, err := rollout.CompileCheck(r.Spec.Checks.Node); err != nil {
			report.Fail("$.spec.checks.node", "%v", err)
		}
	}
	for i, w := range r.Spec.Checks.Workloads {
		path := fmt.Sprintf("$.spec.checks.workloads[%d]", i)
		for _, problem := range validation.IsDNS1123Label(w.Namespace) {
			report.Fail(path+".namespace", "%q is no name of a namespace: %s", w.Namespace, problem)
		}
		for _, problem := range validation.IsDNS1123Subdomain(w.Name) {
			report.Fail(path+".name", "%q is no name of a %s: %s", w.Name, w.Kind, problem)
		}
	}
	if r.Spec.PassSlotOn && r.Name == api.MasterPool {
		report.Warn("$.spec.passSlotOn", "the pool %s never passes a slot on: etcd could lose its quorum", r.Name)
	}
	for _, name := range r.Spec.After {
		if name == r.Name {
			report.Fail("$.spec.after", "the pool would wait for itself")
		}
	}
	return report
}
