package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
)

// eventsPath is the path of events about objects without a namespace.
const eventsPath = "/api/v1/namespaces/default/events"

// maxMessage is the maximum length of an event's message in bytes, by the API.
const maxMessage = 1024

// Record implements node.Cluster. The name of an event is derived from what it says, so that the same event of the same
// hour is one object, of whichever agent.
func (c *Cluster) Record(ctx context.Context, of node.Node, e node.Event) error {
	const hour = time.Hour
	now := c.Now().UTC()
	message := api.Shortened(e.Message, maxMessage)
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s\x00%s\x00%s\x00%d", of.UID, e.Reason, message, now.Truncate(hour).Unix())
	name := fmt.Sprintf("%.230s.%016x", of.Name, sum.Sum64())
	at := metav1.NewTime(now)
	body, err := json.Marshal(corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: of.Name, UID: types.UID(of.UID)},
		Reason:         e.Reason, Message: message, Type: kind, Source: corev1.EventSource{Component: fieldManager, Host: of.Name},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	})
	if err != nil {
		return err
	}
	err = c.do(ctx, c.API.Post().AbsPath(eventsPath).Body(body), "record an event", nil)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	again := fmt.Sprintf(`{"lastTimestamp":%q}`, now.Format(time.RFC3339))
	return c.do(ctx, c.API.Patch(types.MergePatchType).AbsPath(eventsPath+"/"+name).Body([]byte(again)), "record an event again", nil)
}
