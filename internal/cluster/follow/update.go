package follow

import (
	"cmp"
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
)

const (
	defaultEvery = 10 * time.Minute
	retryAfter   = time.Minute // after a failure
)

// update makes what a PoolRollout asks for, and reports what keeps it from that. The status is written first: it has which
// image a rollout is about, also if this ends between the two.
func (f *follower) update(ctx context.Context, r *api.PoolRollout) error {
	resolved, want, wrong := f.wanted(ctx, r)
	if err := f.report(ctx, r, resolved, wrong); err != nil || want == nil {
		return cmp.Or(err, wrong)
	}
	return cmp.Or(f.write(ctx, r, *want), wrong)
}

// wanted returns what the nodes are to be given; nil: what they are given stays. After an error they keep the image.
func (f *follower) wanted(ctx context.Context, r *api.PoolRollout) (*api.ResolvedImage, *contents, error) {
	spec, resolved := r.Spec, r.Status.Image
	if spec.NodeSelector == nil && spec.Image == nil && len(spec.KernelArguments) == 0 {
		return nil, &contents{}, nil
	}
	pool, err := f.pool(ctx, r)
	if err != nil {
		return resolved, nil, err
	}
	if report := f.policy.Check(spec.KernelArguments...); len(report) > 0 {
		return resolved, nil, fault.New(fault.BadInput, "cannot use spec.kernelArguments: %s %s", report[0].Path, report[0].Message).
			WithHint("give it to the nodes by a MachineConfig of your own")
	}
	if spec.Image == nil {
		return nil, &contents{arguments: spec.KernelArguments}, nil
	}
	now, err := f.read(ctx, r)
	if err != nil {
		return resolved, nil, err
	}
	want := &contents{arguments: spec.KernelArguments, secret: now.secret}
	if f.due(r, pool) {
		resolved, err = f.renew(ctx, r, pool, want)
	} else if resolved.Failure != "" { // it is tried again later
		err = errors.New(resolved.Failure)
	}
	if want.image = resolved.Image; want.image == "" {
		want.arguments = nil // they come with the image, in one step
	}
	return resolved, want, err
}

// due reports whether a tag is to be resolved. Somebody has named another one, or the last attempt has failed a while ago.
// Otherwise the rollout must have ended: that of the pull secret, or one a while ago.
func (f *follower) due(r *api.PoolRollout, pool *api.MachineConfigPool) bool {
	last := r.Status.Image
	ended := r.Status.Ended == pool.Spec.Configuration.Name
	switch {
	case last == nil, last.Ref != r.Spec.Image.Ref:
		return true
	case last.Failure != "":
		return f.left(r) <= 0
	}
	return ended && (last.Image == "" || f.left(r) <= 0)
}

// left returns after what time the tag is to be resolved again. Who has a record in the future has set the clock back.
func (f *follower) left(r *api.PoolRollout) time.Duration {
	wait := cmp.Or(r.Spec.Image.Every.Duration, defaultEvery)
	if r.Status.Image.Failure != "" {
		wait = retryAfter
	}
	if r.Status.Image.Checked.After(f.Now()) {
		return 0
	}
	return r.Status.Image.Checked.Add(wait).Sub(f.Now())
}

// renew resolves the tag, and puts the pull secret of now into the contents. The image waits until the nodes have that.
func (f *follower) renew(ctx context.Context, r *api.PoolRollout, pool *api.MachineConfigPool, want *contents) (*api.ResolvedImage, error) {
	resolved := &api.ResolvedImage{Ref: r.Spec.Image.Ref, Checked: metav1.NewTime(f.Now().Truncate(time.Second))}
	if old := r.Status.Image; old != nil {
		resolved.Image = old.Image
	}
	secret, err := f.secret(ctx, r.Spec.Image.PullSecretRef)
	image := imageref.Reference{}
	if err == nil {
		image, err = f.resolve(ctx, r, secret, pool)
	}
	if err != nil {
		resolved.Failure = textOf(err)
		return resolved, err
	}
	want.secret = secret
	has, err := f.nodesHave(ctx, r, secret)
	if has {
		resolved.Image = image.String()
	}
	return resolved, err
}
