package guestfleet

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machine-pivot/internal/cluster/api"
)

// out is which nodes were out of service at a time.
type out struct {
	mu    sync.Mutex
	most  []string
	order []string // nodes that were cordoned, in their order
	now   []string // nodes that are cordoned
}

// MostOut returns the largest set of nodes that have joined and were out of service at a time: cordoned, failed, or
// on the way to another MachineConfig.
func (w *World) MostOut() []string {
	w.out.mu.Lock()
	defer w.out.mu.Unlock()
	return slices.Clone(w.out.most)
}

// Cordoned returns the nodes that were cordoned so far, in their order. A node that was cordoned again is there again.
func (w *World) Cordoned() []string {
	w.out.mu.Lock()
	defer w.out.mu.Unlock()
	return slices.Clone(w.out.order)
}

// watch looks at all nodes ten times in a second, until the end of the world. An agent holds a node for much longer.
func (w *World) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(100 * time.Millisecond)
		defer ticks.Stop()
		for {
			var nodes corev1.NodeList
			if w.List(ctx, &nodes) == nil { // else the next time
				w.out.see(nodes.Items)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	}()
	w.t.Cleanup(func() { cancel(); <-ended })
}

func (o *out) see(nodes []corev1.Node) {
	var away, cordoned []string
	for _, n := range nodes {
		if n.Spec.Unschedulable {
			cordoned = append(cordoned, n.Name)
		}
		current := n.Annotations[api.CurrentConfig]
		if current != "" && (n.Spec.Unschedulable || n.Annotations[api.DesiredConfig] != current || n.Annotations[api.StateOfNode] != api.StateDone) {
			away = append(away, n.Name)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(away) > len(o.most) {
		o.most = away
	}
	for _, name := range cordoned {
		if !slices.Contains(o.now, name) {
			o.order = append(o.order, name)
		}
	}
	o.now = cordoned
}
