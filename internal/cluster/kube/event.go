package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
)

// eventsPath is the path of events about objects without a namespace.
const eventsPath = "/api/v1/namespaces/default/events"

// event is an event about a node. Its name is derived from what it says, so that the same event of the
// same hour is one object, of whichever agent.
type event struct {
	APIVersion     string            `json:"apiVersion"`
	Kind           string            `json:"kind"`
	Metadata       map[string]string `json:"metadata"`
	InvolvedObject map[string]string `json:"involvedObject"`
	Reason         string            `json:"reason"`
	Message        string            `json:"message"`
	Type           string            `json:"type"`
	Source         map[string]string `json:"source"`
	FirstTimestamp string            `json:"firstTimestamp"`
	LastTimestamp  string            `json:"lastTimestamp"`
	Count          int               `json:"count"`
}

// maxMessage is the maximum length of an event's message in bytes, by the API.
const maxMessage = 1024

// Record implements node.Cluster.
func (c *Cluster) Record(ctx context.Context, of node.Node, e node.Event) error {
	const hour = time.Hour
	now := c.Now().UTC()
	message := api.Shortened(e.Message, maxMessage)
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s\x00%s\x00%s\x00%d", of.UID, e.Reason, message, now.Truncate(hour).Unix())
	name := fmt.Sprintf("%.230s.%016x", of.Name, sum.Sum64())
	at := now.Format(time.RFC3339)
	body, err := json.Marshal(event{
		APIVersion: "v1", Kind: "Event", Metadata: map[string]string{"name": name, "namespace": "default"},
		InvolvedObject: map[string]string{"apiVersion": "v1", "kind": "Node", "name": of.Name, "uid": of.UID},
		Reason:         e.Reason, Message: message, Type: kind, Source: map[string]string{"component": fieldManager, "host": of.Name},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	})
	if err != nil {
		return err
	}
	err = c.Do(ctx, c.API.Post().AbsPath(eventsPath).Body(body), "record an event", nil)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	again := fmt.Sprintf(`{"lastTimestamp":%q}`, at)
	return c.Do(ctx, c.API.Patch(types.MergePatchType).AbsPath(eventsPath+"/"+name).Body([]byte(again)), "record an event again", nil)
}
