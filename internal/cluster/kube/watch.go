package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"strconv"
	"time"

	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/retry"
)

// watched is one event of a watch.
type watched struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// Watch calls changed when the node's annotations, or its cordon, have changed, until ctx ends. The
// status that kubelet writes is no change; Cluster.Capacity is told what it says of workloads. A watch
// that ends is followed by another one; changed is called in between, because something may have been
// missed. One that has ended early is followed after a random pause: all others may have ended then, too.
func (c *Cluster) Watch(ctx context.Context, changed func()) {
	const pause = 30 * time.Second
	var last node.Node
	for ctx.Err() == nil {
		began := time.Now()
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
		if err == nil && time.Since(began) >= pause { // it has ended after its time
			continue
		}
		_ = retry.Sleep(ctx, retry.Policy{First: pause, Cap: pause}.Wait(1, nil)) // if ctx ends, so does the loop
	}
}

// watchOnce watches the node for a bounded time. The first event is the node as it is.
func (c *Cluster) watchOnce(ctx context.Context, seen func(o object)) error {
	const longest = 540 * time.Second
	limit := longest - rand.N(longest/2)
	ctx, cancel := context.WithTimeout(ctx, limit+requestLimit)
	defer cancel()
	stream, err := c.API.Get().AbsPath("/api/v1/nodes").
		Param("watch", "true").Param("fieldSelector", "metadata.name="+c.Name).Param("timeoutSeconds", strconv.Itoa(int(limit.Seconds()))).Stream(ctx)
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
