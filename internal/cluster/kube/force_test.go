package kube_test

import (
	"context"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/controlplane"
)

// forced: what a budget keeps is deleted only if the node's annotation wants that, and only after its time. Each pod is an
// event. What the policy protects, or a webhook keeps, is not deleted.
func forced(w *drainWorld) {
	moving := w.keptByWebhook()
	protected, kept := w.pod("protected", app("db")), w.pod("kept", app("cache"), controllerless)
	w.budget("db", "db", minAvailable(1), 0)
	w.budget("cache", "cache", minAvailable(1), 0)
	started := time.Now().Add(-30 * time.Minute)
	drainWith := func(after string) error {
		of := w.node()
		of.Annotations[api.DrainStarted] = started.Format(time.RFC3339)
		if after != "" {
			of.Annotations[api.ForceDrainAfter] = after
		}
		w.drainer.Limit = impatient
		return w.drainer.Drain(w.Context(), of)
	}
	for _, after := range []string{"", "40m", "soon", "-1h", "0s"} {
		w.says(drainWith(after), w.name+"/protected: protected by the budget "+w.name+"/db")
	}
	if !w.untouched(protected) || !w.untouched(kept) {
		w.Fatal("pods are gone that a budget protects")
	}
	w.says(drainWith("20m"), w.name+"/moving: ", "webhook")
	if !w.gone(protected) || !w.gone(kept) || !w.untouched(moving) {
		w.Errorf("after the time: gone: %v, %v; kept by a webhook: %v", w.gone(protected), w.gone(kept), w.untouched(moving))
	}
	events, err := w.admin.CoreV1().Events("default").List(w.Context(), metav1.ListOptions{FieldSelector: "reason=" + api.EventPodDeleted + ",involvedObject.name=" + w.name})
	if err != nil || len(events.Items) != 2 || !strings.Contains(events.Items[0].Message, "longer than 20m0s") {
		w.Errorf("%v, %+v", err, events)
	}
}

// keptByWebhook returns a pod that a webhook keeps from being evicted.
func (w *drainWorld) keptByWebhook() *corev1.Pod {
	w.Helper()
	hooks := w.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "moving.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}, AdmissionReviewVersions: []string{"v1"},
		FailurePolicy: new(admissionv1.Fail), SideEffects: new(admissionv1.SideEffectClassNone), TimeoutSeconds: new(int32(1)),
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.name}},
		MatchConditions:   []admissionv1.MatchCondition{{Name: "moving", Expression: "request.name == 'moving'"}},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule: admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"pods/eviction"}}}},
	}}}
	if _, err := hooks.Create(w.Context(), hook, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = hooks.Delete(context.WithoutCancel(w.Context()), w.name, metav1.DeleteOptions{}) })
	p := w.pod("moving")
	controlplane.Eventually(w, "the webhook is known", func(ctx context.Context) bool {
		err := w.admin.PolicyV1().Evictions(w.name).Evict(ctx, &policyv1.Eviction{ObjectMeta: p.ObjectMeta, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}})
		return err != nil && strings.Contains(err.Error(), "moving.example.com")
	})
	return p
}

func controllerless(p *corev1.Pod) { p.OwnerReferences = nil }
