package render

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
)

// The reasons of the condition RenderDegraded.
const (
	reasonRendered    = "Rendered"
	reasonNone        = "NoMachineConfigs"
	reasonProblems    = "InvalidMachineConfigs"
	reasonUnavailable = "ContentUnavailable" // tried again
	reasonFailed      = "RenderFailed"       // tried again
)

// The most bytes of texts.
const (
	maxMessage = 16_000 // of a condition; the schema allows 32,768 characters
)

// verdict is what a condition says.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// decide returns what the condition RenderDegraded says after an attempt. Warnings are part of it even if there
// is no error, since there is no other place where their authors would see them.
func decide(done rendered, failed error) verdict {
	var parts []string
	if failed != nil {
		parts = append(parts, failed.Error())
	}
	if len(done.problems) > 0 {
		parts = append(parts, done.problems.String())
	}
	text := bounded(strings.Join(parts, "\n"), maxMessage)
	switch {
	case done.problems.Failed() && failed == nil:
		return verdict{api.True, reasonProblems, text}
	case failed != nil:
		return verdict{api.True, kindOf(failed), text}
	case done.none:
		return verdict{api.True, reasonNone, "no MachineConfig matches spec.machineConfigSelector"}
	}
	return verdict{api.False, reasonRendered, text}
}

// report writes the condition RenderDegraded, if it changes. The update fails if another controller has changed
// the pool's status since it was read, because it replaces the list of all conditions.
func (r *renderer) report(ctx context.Context, p *api.MachineConfigPool, v verdict) error {
	before := p.DeepCopyObject().(*api.MachineConfigPool)
	if !set(&p.Status.Conditions, api.PoolRenderDegraded, v, r.now()) {
		return nil
	}
	err := r.cached.Status().Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("cannot write the condition %s of the pool %s: %w", api.PoolRenderDegraded, p.Name, err)
	}
	if v.status == api.True {
		r.event(p, corev1.EventTypeWarning, api.EventRenderFailed, v.message)
	}
	return nil
}

// set sets one of some conditions as a verdict says, and returns whether it has changed.
func set(all *[]metav1.Condition, kind string, v verdict, now time.Time) bool {
	return meta.SetStatusCondition(all, metav1.Condition{
		Type: kind, Status: v.status, Reason: v.reason, Message: v.message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
}

// bounded shortens a text to a number of bytes, at the end of a line if it has several.
func bounded(text string, most int) string {
	const more = "\n…"
	if len(text) <= most {
		return text
	}
	text = strings.ToValidUTF8(text[:most-len(more)], "")
	if end := strings.LastIndexByte(text, '\n'); end > 0 {
		text = text[:end]
	}
	return text + more
}
