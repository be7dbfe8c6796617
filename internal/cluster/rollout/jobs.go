package rollout

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
)

// readJobs returns the state of the Jobs that the pools wait for. One that cannot be read is a problem of its node only.
func (k *Kube) readJobs(ctx context.Context, pools []Pool) map[string]JobState {
	out := map[string]JobState{}
	for i := range pools {
		for _, r := range pools[i].Rollout.Hooks {
			if r.Done {
				continue
			}
			var j batchv1.Job
			namespace, name, _ := strings.Cut(r.Job, "/")
			switch err := k.Direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &j); {
			case apierrors.IsNotFound(err):
				out[r.Job] = JobState{Problem: k.jobProblems[r.Job]}
			case err != nil: // as if it ran
				out[r.Job] = JobState{Exists: true, Problem: api.BoundedReason(err.Error())}
			default:
				out[r.Job] = stateOf(&j)
			}
		}
	}
	maps.DeleteFunc(k.jobProblems, func(job string, _ string) bool { _, known := out[job]; return !known })
	return out
}

func stateOf(j *batchv1.Job) JobState {
	s := JobState{Exists: true}
	for _, c := range j.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			s.Done = true
		case c.Type == batchv1.JobFailed:
			s.Failure = strings.Trim(c.Reason+": "+c.Message, ": ")
		}
	}
	return s
}

// Run implements Cluster. Only a suspended Job is a template: whoever may write PoolRollouts cannot run anything else again.
func (k *Kube) Run(ctx context.Context, h Hook) error {
	err := k.create(ctx, h)
	if k.jobProblems == nil {
		k.jobProblems = map[string]string{}
	}
	if delete(k.jobProblems, h.Job); err != nil {
		k.jobProblems[h.Job] = api.BoundedReason(err.Error())
	}
	return nil // the node is named with it, and nothing else waits
}

func (k *Kube) create(ctx context.Context, h Hook) error {
	var template batchv1.Job
	if err := k.Direct.Get(ctx, client.ObjectKey{Namespace: h.Template.Namespace, Name: h.Template.Name}, &template); err != nil {
		return fmt.Errorf("cannot read the Job %s/%s: %w", h.Template.Namespace, h.Template.Name, err)
	}
	if template.Spec.Suspend == nil || !*template.Spec.Suspend {
		return fmt.Errorf("cannot copy the Job %s/%s: it is not suspended; set its spec.suspend", h.Template.Namespace, h.Template.Name)
	}
	if err := k.Writer.Create(ctx, copyOf(&template, h)); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// copyOf returns the Job of a hook: as the template is, but for what the API server has added to that.
func copyOf(template *batchv1.Job, h Hook) *batchv1.Job {
	_, name, _ := strings.Cut(h.Job, "/")
	j := &batchv1.Job{ObjectMeta: v1.ObjectMeta{Namespace: h.Template.Namespace, Name: name, Labels: map[string]string{api.Prefix + "/hook": h.When}}}
	template.Spec.DeepCopyInto(&j.Spec)
	j.Spec.Suspend, j.Spec.Selector, j.Spec.ManualSelector = nil, nil, nil
	for _, label := range []string{batchv1.ControllerUidLabel, batchv1.JobNameLabel, "controller-uid", "job-name"} {
		delete(j.Spec.Template.Labels, label)
	}
	j.Spec.ActiveDeadlineSeconds = new(int64(h.Timeout / time.Second))
	env := []corev1.EnvVar{{Name: "PIVOT_NODE", Value: h.Name}, {Name: "PIVOT_CONFIG", Value: h.Config}}
	for _, containers := range [][]corev1.Container{j.Spec.Template.Spec.InitContainers, j.Spec.Template.Spec.Containers} {
		for i := range containers {
			containers[i].Env = append(env, containers[i].Env...)
		}
	}
	return j
}
