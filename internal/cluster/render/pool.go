package render

import (
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/snapshot"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
)

// maxPoolName limits a pool's name, so that the names of its rendered MachineConfigs fit into the limit for names:
// rendered-POOL-, and 32 hexadecimal digits.
const maxPoolName = 253 - len(api.RenderedPrefix) - 1 - 32

// releaseImage is the annotation of a rendered MachineConfig with the cluster's release image.
const releaseImage = "machineconfiguration.openshift.io/release-image-version"

// limit ends an attempt to render. What is fetched has its own limits, below this one.
const limit = 10 * time.Minute

// reconcilePool renders the MachineConfig of a pool.
func (r *renderer) reconcilePool(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p := &api.MachineConfigPool{}
	if err := r.cached.Get(ctx, request.NamespacedName, p); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	} else if err != nil || p.DeletionTimestamp != nil {
		r.measured.gone(request.Name)
		next, err := r.collectGone(ctx, request.Name)
		return reconcile.Result{RequeueAfter: next}, err
	}
	began := r.now()
	done, failed := r.render(ctx, p)
	if conflict(failed) {
		return reconcile.Result{}, failed
	}
	r.measured.attempt(outcome(done, failed), r.now().Sub(began))
	verdict := decide(done, failed)
	r.measured.pool(p.Name, verdict)
	if err := r.report(ctx, p, verdict); err != nil {
		return reconcile.Result{}, err
	}
	if failed != nil || done.refused() {
		return reconcile.Result{}, failed // a refused input is looked at again when it changes
	}
	_, next, err := r.collect(ctx, p.Name, r.Keep)
	return reconcile.Result{RequeueAfter: next}, err
}

// rendered is the result of an attempt to render.
type rendered struct {
	none     bool           // the pool selects no MachineConfig
	problems problem.Report // of the input
}

func (d rendered) refused() bool { return d.none || d.problems.Failed() }

func outcome(done rendered, failed error) string {
	switch {
	case failed != nil:
		return resultUnavailable
	case done.refused():
		return resultRefused
	}
	return resultRendered
}

// render merges the MachineConfigs of a pool, creates the result unless it exists, and names it in the pool.
func (r *renderer) render(ctx context.Context, p *api.MachineConfigPool) (rendered, error) {
	all, report, err := r.sources(ctx, p)
	if err != nil || len(all) == 0 {
		return rendered{err == nil && !report.Failed(), report}, err
	}
	// Problems of the rest are reported with those of the objects that cannot be decoded, so that all are seen at
	// once.
	whole, problems, err := r.complete(ctx, all)
	report = append(report, problems...)
	if len(p.Name) > maxPoolName {
		report.Fail("$.metadata.name", "a pool's name has at most %d characters, or else its rendered MachineConfigs could have no name", maxPoolName)
	}
	if err != nil || report.Failed() {
		return rendered{problems: report}, err
	}
	merged, problems, err := r.merge(ctx, whole, p.Name)
	report = append(report, problems...)
	if err != nil || report.Failed() {
		return rendered{problems: report}, err
	}
	problems, err = r.ensure(ctx, p, merged)
	report = append(report, problems...)
	if err != nil || report.Failed() {
		return rendered{problems: report}, err
	}
	return rendered{problems: report}, r.name(ctx, p, merged.Name, all)
}

// merge merges self-contained MachineConfigs, as "pivotctl config render" does.
func (r *renderer) merge(ctx context.Context, whole []*authored.MachineConfig, role string) (*authored.MachineConfig, problem.Report, error) {
	renderer := authored.Renderer{
		Rules:  r.rules,
		Base:   r.base,
		Inline: snapshot.New(r.rules.KernelArguments).Inline, // there is nothing to fetch left
	}
	return renderer.MergeChosen(ctx, whole, role)
}

// ensure creates a rendered MachineConfig. One that exists must have the same spec: nodes that have it would
// otherwise differ from what its name says, so it is never overwritten.
func (r *renderer) ensure(ctx context.Context, p *api.MachineConfigPool, merged *authored.MachineConfig) (problem.Report, error) {
	made, err := object(merged)
	if err != nil {
		return nil, err
	}
	made.Annotations = r.annotations(p, merged)
	existing := &api.MachineConfig{}
	err = r.direct.Get(ctx, client.ObjectKey{Name: made.Name}, existing)
	if apierrors.IsNotFound(err) {
		if err = r.create(ctx, made); apierrors.IsAlreadyExists(err) { // another controller was faster
			err = r.direct.Get(ctx, client.ObjectKey{Name: made.Name}, existing)
		} else if err == nil {
			r.event(p, corev1.EventTypeNormal, api.EventRendered, made.Name+" successfully generated (controller version: "+r.Version+")")
			return nil, nil
		}
	}
	var report problem.Report
	if why := refusal(err, made); why != "" {
		report.Fail("$", "%s", why)
		return report.In("pool " + p.Name), nil
	}
	if err != nil {
		return nil, err
	}
	if existing.DeletionTimestamp != nil {
		return nil, fmt.Errorf("cannot use the MachineConfig %s: %w", made.Name, errDeleted)
	}
	if !sameSpec(existing.Spec.Raw, made.Spec.Raw) {
		report.Fail("$", "there is a MachineConfig %s already, with another content than its name says; it is not overwritten: delete it if no node has it", made.Name)
		return report.In("pool " + p.Name), nil
	}
	return nil, r.needed(ctx, existing)
}

func (r *renderer) annotations(p *api.MachineConfigPool, merged *authored.MachineConfig) map[string]string {
	all := map[string]string{machineconfig.GeneratedBy: r.Version, api.RenderedFor: p.Name}
	if r.Release != "" {
		all[releaseImage] = r.Release
	}
	for name, value := range merged.Annotations {
		all[name] = value
	}
	return all
}

// name names the rendered MachineConfig in the pool. It fails if the pool has changed since it was read.
func (r *renderer) name(ctx context.Context, p *api.MachineConfigPool, name string, all []source) error {
	want := api.PoolConfiguration{APIVersion: machineconfig.APIVersion, Kind: machineconfig.Kind, Name: name}
	for _, s := range all {
		want.Source = append(want.Source, api.ObjectReference{APIVersion: machineconfig.APIVersion, Kind: machineconfig.Kind, Name: s.object.Name})
	}
	if reflect.DeepEqual(p.Spec.Configuration, want) {
		return nil
	}
	before := p.DeepCopyObject().(*api.MachineConfigPool)
	p.Spec.Configuration = want
	if err := r.cached.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("cannot name %s in the pool %s: %w", name, p.Name, err)
	}
	return nil
}

func (r *renderer) event(about client.Object, kind, reason, text string) {
	action, note := api.EventOf("Render", text)
	r.events.Eventf(about, nil, kind, reason, action, "%s", note)
}

// kindOf classifies a failure for the condition of a pool.
func kindOf(err error) string {
	if fault.KindOf(err) == fault.Unavailable {
		return reasonUnavailable
	}
	return reasonFailed
}
