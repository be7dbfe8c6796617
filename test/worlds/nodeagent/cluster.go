package nodeagent

import (
	"context"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
)

// cluster is the world as the agent's node.Cluster.
type cluster struct{ w *World }

func (c cluster) call(name string, effect func() error) error {
	return c.w.call(name, func() error {
		c.w.Requests[name]++
		return effect()
	})
}

// Node implements node.Cluster.
func (c cluster) Node(context.Context) (n node.Node, err error) {
	err = c.call("get node", func() error {
		n = c.w.copyOfNode()
		return nil
	})
	return n, err
}

func (w *World) copyOfNode() node.Node {
	n := w.Node
	n.Annotations = maps.Clone(n.Annotations)
	return n
}

// MachineConfig implements node.Cluster.
func (c cluster) MachineConfig(_ context.Context, name string) (data []byte, err error) {
	err = c.call("get machineconfig", func() error {
		if _, ok := c.w.Configs[name]; !ok {
			return node.ErrNoMachineConfig
		}
		data = []byte(`{"metadata":{"name":"` + name + `"}}`)
		return nil
	})
	return data, err
}

// Patch implements node.Cluster.
func (c cluster) Patch(_ context.Context, read node.Node, p node.Patch) (n node.Node, err error) {
	err = c.call("patch node", func() error {
		if read.ResourceVersion != c.w.Node.ResourceVersion {
			return node.ErrConflict
		}
		before := c.w.Node
		c.w.Change(func(n *node.Node) {
			for name, value := range p.Annotations {
				if value == nil {
					delete(n.Annotations, name)
				} else {
					n.Annotations[name] = *value
				}
			}
			if p.Unschedulable != nil {
				n.Unschedulable = *p.Unschedulable
			}
		})
		if before.Unschedulable && !c.w.Node.Unschedulable && before.Annotations[api.CordonedFor] == "" {
			c.w.Violated("the cordon of somebody else was ended")
		}
		if state := c.w.State(); state != before.Annotations[api.StateOfNode] {
			c.w.States = append(c.w.States, state)
		}
		n = c.w.copyOfNode()
		return nil
	})
	return n, err
}

// Record implements node.Cluster.
func (c cluster) Record(_ context.Context, _ node.Node, e node.Event) error {
	return c.call("record event", func() error {
		c.w.Events, c.w.Said = append(c.w.Events, e.Reason), append(c.w.Said, e.Message)
		return nil
	})
}

// PublishSystem implements node.Cluster.
func (c cluster) PublishSystem(_ context.Context, _ node.Node, s api.NodeSystemStatus) error {
	return c.call("publish system", func() error {
		if c.w.Unpublished > 0 {
			c.w.Unpublished--
			return errors.New("the API server is busy")
		}
		c.w.System = s
		return nil
	})
}

// PublishUpdate implements node.Cluster.
func (c cluster) PublishUpdate(_ context.Context, of node.Node, p api.Progressed) error {
	return c.call("publish update", func() error {
		var before []metav1.Condition
		if n := len(c.w.Updates); n > 0 {
			before = c.w.Updates[n-1].Conditions
		}
		c.w.Updates = append(c.w.Updates, p.Status(of.Annotations[api.CurrentConfig], before, c.w.Clock))
		return nil
	})
}

// drainer is the world as the agent's node.Drainer.
type drainer struct{ w *World }

// Rehearse implements node.Drainer.
func (d drainer) Rehearse(context.Context) error { return d.w.call("rehearse", d.blocked) }

func (d drainer) blocked() error {
	if d.w.Forbidden != "" {
		return fault.New(fault.Refused, "%s", d.w.Forbidden).WithHint("ask its owner")
	}
	if d.w.Blocked != "" {
		return fault.New(fault.Unavailable, "%s", d.w.Blocked).WithHint("ask its owner")
	}
	return nil
}

// Drain implements node.Drainer.
func (d drainer) Drain(_ context.Context, of node.Node) error {
	return d.w.call("drain", func() error {
		if d.w.Node.UID != of.UID || !d.w.Node.Unschedulable {
			return node.ErrConflict
		}
		if err := d.blocked(); err != nil {
			return err
		}
		d.w.evict()
		return nil
	})
}

func (w *World) evict() {
	if w.Pods > 0 {
		w.Evictions++
	}
	w.Pods = 0
}

// Controller does what a drain controller does: what the annotation asks for, at once.
func (w *World) Controller() {
	asked := w.Note(api.DesiredDrain)
	if asked == "" || asked == w.Note(api.LastAppliedDrain) {
		return
	}
	if api.IsDrain(asked) {
		w.Change(func(n *node.Node) { n.Unschedulable = true })
		w.evict()
	}
	w.Change(func(n *node.Node) {
		n.Unschedulable = api.IsDrain(asked)
		n.Annotations[api.LastAppliedDrain] = asked
	})
}
