package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
)

// force deletes the pods that a budget keeps from being evicted, if the node's pool wants that and the drain has lasted for
// so long. It deletes exactly these pods, each within its own grace period, and each is an event. Nothing else is deleted: not what the
// policy protects, and not what a webhook or a missing right has refused.
func (d *Drainer) force(ctx context.Context, of node.Node, refused refusals) {
	after, wanted := node.ForcesDrain(of)
	started, err := time.Parse(time.RFC3339, of.Annotations[api.DrainStarted])
	if !wanted || err != nil || d.Cluster.Now().Before(started.Add(after)) {
		return
	}
	for p, why := range refused {
		if !why.budget {
			continue
		}
		body, err := json.Marshal(metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		if err == nil {
			path := []string{"/api/v1/namespaces", p.Namespace, "pods", p.Name}
			err = d.Cluster.do(ctx, d.Cluster.API.Delete().AbsPath(path...).Body(body), "delete the pod "+nameOf(p), nil)
		}
		if r := refusalOf(err); r != nil {
			refused[p] = refusal{says: fmt.Sprintf("held by a budget for longer than %s, and not deleted: %s", after, r.says)}
			continue
		}
		delete(refused, p)
		d.Log.WithField("pod", nameOf(p)).Warn("deleted a pod against its budget")
		message := fmt.Sprintf("deletes the pod %s, which a budget has kept from being evicted for longer than %s", nameOf(p), after)
		if err := d.Cluster.Record(ctx, of, node.Event{Reason: api.EventPodDeleted, Message: message, Warning: true}); err != nil {
			d.Log.WithError(err).Warn("cannot record an event")
		}
	}
}
