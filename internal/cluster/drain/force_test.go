package drain_test

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
)

// forced: what a budget keeps is deleted only if the node's annotation wants that, only after its time, with one event for
// each pod; what the policy protects is not.
func forced(w *world) {
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
	if err := drainWith("20m"); err != nil || !w.gone(protected) || !w.gone(kept) {
		w.Errorf("after the time: %v", err)
	}
	events, err := w.admin.CoreV1().Events("default").List(w.Context(), metav1.ListOptions{FieldSelector: "reason=" + api.EventPodDeleted + ",involvedObject.name=" + w.name})
	if err != nil || len(events.Items) != 2 || !strings.Contains(events.Items[0].Message, "longer than 20m0s") {
		w.Errorf("%v, %+v", err, events)
	}
}

func controllerless(p *corev1.Pod) { p.OwnerReferences = nil }
