package rollout

import (
	"encoding/json"
	"maps"
	"time"

	"machine-pivot/internal/cluster/api"
)

// Guarded is the annotation of a node that is in change, for which others are asked neither to delete nor to reboot it: a
// guard, as JSON.
const Guarded = api.Prefix + "/guarded"

// guardFor is how long a node stays guarded after it has given its slot back. An autoscaler would delete this empty node
// rather than one that is still to change.
const guardFor = 10 * time.Minute

// guard is what is known of a guarded node, so that whichever controller finds it can end that.
type guard struct {
	Before map[string]string `json:"before,omitempty"` // what somebody else had set of the marks, by name
	Until  time.Time         `json:"until,omitzero"`   // zero: while the node has a slot
}

// The marks that others look for, each with the value "true".
const (
	// Of a Node's annotations: the cluster autoscaler (its FAQ, since 1.0), and Karpenter (its reference of annotations).
	noScaleDown  = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	noDisruption = "karpenter.sh/do-not-disrupt"
	// Of its labels: medik8s' NodeHealthCheck and remediation operators (medik8s/common).
	noRemediation = "remediation.medik8s.io/exclude-from-remediation"
)

// guardOf returns a node's guard; nil if it has none that can be read.
func (n *Node) guardOf() *guard {
	var g guard
	if json.Unmarshal([]byte(n.Annotations[Guarded]), &g) != nil {
		return nil
	}
	return &g
}

// guardPatch adds to a patch that a node is guarded until a time; zero: for as long as it has a slot. What somebody else had
// set before the first of these patches is recorded, and what somebody has changed since.
func guardPatch(n *Node, patch map[string]any, until time.Time) {
	g := n.guardOf()
	first := g == nil
	if first {
		g = &guard{}
	}
	if g.Before == nil {
		g.Before = map[string]string{}
	}
	for mark, of := range map[string]map[string]string{noScaleDown: n.Annotations, noDisruption: n.Annotations, noRemediation: n.Labels} {
		if value, set := of[mark]; set && (first || value != "true") {
			g.Before[mark] = value
		} else if !set {
			delete(g.Before, mark)
		}
	}
	g.Until = until
	annotate(patch, map[string]any{Guarded: string(text(g)), noScaleDown: "true", noDisruption: "true"}, map[string]any{noRemediation: "true"})
}

// unguardPatch adds to a patch that a node is guarded no more: each mark becomes what it was before, unless somebody has
// changed it since.
func unguardPatch(n *Node, patch map[string]any) {
	annotations, labels := map[string]any{Guarded: nil}, map[string]any{}
	before := map[string]string{}
	if g := n.guardOf(); g != nil {
		before = g.Before
	}
	restore := func(have map[string]string, into map[string]any, marks ...string) {
		for _, mark := range marks {
			if old, set := before[mark]; set && have[mark] == "true" {
				into[mark] = old
			} else if have[mark] == "true" {
				into[mark] = nil
			}
		}
	}
	restore(n.Annotations, annotations, noScaleDown, noDisruption)
	restore(n.Labels, labels, noRemediation)
	annotate(patch, annotations, labels)
}

// annotate adds annotations and labels to a patch.
func annotate(patch, annotations, labels map[string]any) {
	metadata := patch["metadata"].(map[string]any)
	for name, more := range map[string]map[string]any{"annotations": annotations, "labels": labels} {
		all, _ := metadata[name].(map[string]any)
		if all == nil {
			all = map[string]any{}
		}
		maps.Copy(all, more)
		metadata[name] = all
	}
}

// guardEnds returns whether the guard of a node is over, or is to get its end: a node with a slot, or in change, stays guarded.
func (n *Node) guardEnds(taken bool, now time.Time) (over, soon bool) {
	if _, guarded := n.Annotations[Guarded]; !guarded || taken || n.hasBegun() {
		return false, false
	}
	g := n.guardOf()
	switch {
	case g == nil:
		return true, false
	case g.Until.IsZero(), g.Until.After(now.Add(guardFor)): // whoever gave the slot back was killed, or a clock was set back
		return false, true
	}
	return !g.Until.After(now), false
}
