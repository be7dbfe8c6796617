package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"time"

	"machine-pivot/internal/cluster/node"
)

// watched is one event of a watch.
type watched struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// Watch calls changed when the node's annotations, or its cordon, have changed, until ctx ends. The
// status that kubelet writes is no change; Cluster.Capacity is told what it says of workloads. A watch
// that ends is followed by another one; changed is called in between, because something may have been
// missed.
func (c *Cluster) Watch(ctx context.Context, changed func()) {
	const pause = 30 * time.Second
	var last node.Node
	for ctx.Err() == nil {
		err := c.watchOnce(ctx, func(o object) {
			if c.Capacity != nil {
				c.Capacity(o.capacity())
			}
			n := o.node()
			if n.Unschedulable != last.Unschedulable || !maps.Equal(n.Annotations, last.Annotations) {
				changed()
			}
			last = n
		})
		if err == nil { // it has ended after its time
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// watchOnce watches the node for a bounded time. The first event is the node as it is.
func (c *Cluster) watchOnce(ctx context.Context, seen func(o object)) error {
	const limit = 540 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit+requestLimit)
	defer cancel()
	stream, err := c.API.Get().AbsPath("/api/v1/nodes").
		Param("watch", "true").Param("fieldSelector", "metadata.name="+c.Name).Param("timeoutSeconds", "540").Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	for d := json.NewDecoder(stream); ; {
		var w watched
		switch err := d.Decode(&w); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case w.Type == "ERROR":
			return errors.New("the watch has ended with an error")
		}
		seen(w.Object)
	}
}
