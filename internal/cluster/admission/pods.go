package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machine-pivot/internal/pods"
	"machine-pivot/internal/problem"
)

// partitioner changes pods of a workload when they are created.
type partitioner struct {
	reader client.Reader // of a cache
	state  *partitioned
}

// Handle implements admission.Handler.
func (p *partitioner) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || isMirror(req.Object.Raw) {
		return admission.Allowed("") // kubelet changes static pods itself
	}
	allowed, err := p.allowed(ctx, req.Namespace)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	out, response := judgePod(req.Object.Raw, allowed, func(workload string) string {
		if why := p.state.off(ctx, workload); why != "" {
			return why
		}
		return p.limited(ctx, req.Namespace)
	})
	if out != nil {
		patched := admission.PatchResponseFromRaw(req.Object.Raw, out)
		response.Patches, response.PatchType = patched.Patches, patched.PatchType
	}
	return response
}

// judgePod returns the changed pod, nil if it stays, and the answer without the change.
func judgePod(pod []byte, allowed map[string]string, off func(string) string) ([]byte, admission.Response) {
	out, decision, report := pods.Mutate("", pod, pods.Options{Allowed: allowed, Off: off, Zero: true})
	if report.Failed() {
		return nil, invalid(report)
	}
	response := admission.Allowed("").WithWarnings(texts(removed(decision))...)
	if decision.Warning != "" {
		response = response.WithWarnings(cut(decision.Warning))
	}
	if !decision.Changed {
		return nil, response
	}
	return out, response
}

// removed returns what the author of a pod should know.
func removed(d pods.Decision) (report problem.Report) {
	for _, r := range d.Removed {
		report.Warn("metadata.annotations["+r.Key+"]", "it is removed: %s", r.Reason)
	}
	return report
}

// allowed returns the workload types that a namespace allows, as package pods takes them.
func (p *partitioner) allowed(ctx context.Context, namespace string) (map[string]string, error) {
	meta := namespaces()
	if err := p.reader.Get(ctx, types.NamespacedName{Name: namespace}, meta); err != nil {
		return nil, err
	}
	allowed := map[string]string{}
	if value, ok := meta.Annotations[pods.AllowedAnnotation]; ok {
		allowed[namespace] = value
	}
	return allowed, nil
}

// limited returns why the API server would refuse a pod that requests no CPU in a namespace; "" if it would not.
func (p *partitioner) limited(ctx context.Context, namespace string) string {
	var all corev1.LimitRangeList
	if err := p.reader.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "the LimitRanges of its namespace cannot be read: " + err.Error()
	}
	for _, r := range all.Items {
		for _, item := range r.Spec.Limits {
			least, ratio := item.Min[corev1.ResourceCPU], item.MaxLimitRequestRatio[corev1.ResourceCPU]
			if item.Type != corev1.LimitTypePersistentVolumeClaim && least.Sign()+ratio.Sign() > 0 {
				return fmt.Sprintf("the LimitRange %s of its namespace demands a request of CPU (min or maxLimitRequestRatio), and a partitioned pod has none", r.Name)
			}
		}
	}
	return ""
}

// isMirror reports whether a pod is kubelet's own copy of a static pod.
func isMirror(pod []byte) bool {
	var m struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(pod, &m) != nil {
		return false
	}
	_, mirror := m.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// namespaces is a namespace, of which only the metadata is read.
func namespaces() *metav1.PartialObjectMetadata {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	return meta
}
