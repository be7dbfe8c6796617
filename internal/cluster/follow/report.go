package follow

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
)

// The reasons of the events about a PoolRollout.
const (
	EventResolved = "ImageResolved"
	EventNotMet   = "SpecNotMet"
)

// report writes what a tag is resolved to, and why the spec is not met.
func (f *follower) report(ctx context.Context, r *api.PoolRollout, resolved *api.ResolvedImage, problem error) error {
	text := ""
	if api.HasChanged(problem) {
		return nil
	} else if problem != nil {
		text = textOf(problem)
	}
	old := r.Status
	if apiequality.Semantic.DeepEqual(old.Image, resolved) && old.Problem == text {
		return nil
	}
	before := r.DeepCopyObject().(*api.PoolRollout)
	r.Status.Image, r.Status.Problem = resolved, text
	if err := f.cached.Status().Patch(ctx, r, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("cannot write the status of the PoolRollout %s: %w", r.Name, err)
	}
	switch {
	case text != "" && text != old.Problem:
		f.event(r, corev1.EventTypeWarning, EventNotMet, text)
	case resolved != nil && resolved.Image != "" && (old.Image == nil || resolved.Image != old.Image.Image):
		f.event(r, corev1.EventTypeNormal, EventResolved, resolved.Ref+" is "+resolved.Image)
	}
	return nil
}

// textOf returns what people are told of an error.
func textOf(err error) string { return api.BoundedReason(fault.WithRemedy(err)) }

func (f *follower) event(r *api.PoolRollout, kind, reason, text string) {
	action, note := api.EventOf("Follow", text)
	f.events.Eventf(r, nil, kind, reason, action, "%s", note)
}
