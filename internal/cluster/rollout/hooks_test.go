package rollout_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/controlplane"
)

// hooked is small with a Job before and after each node.
func hooked() *memory {
	m := small()
	m.order = []string{"worker"}
	m.changeRollout("worker", func(p *rollout.Pool) {
		p.Spec.Hooks = api.PoolHooks{BeforeDrain: &api.HookReference{Namespace: "ops", Name: "prepare"}, AfterProof: &api.HookReference{Namespace: "ops", Name: "check"}}
	})
	return m
}

func (m *memory) settles(t *testing.T) api.PoolRolloutStatus {
	t.Helper()
	for range 4 {
		m.pass(t)
		m.now = m.now.Add(5 * time.Second)
	}
	return m.pools["worker"].Rollout
}

// ends ends all Jobs that run.
func (m *memory) ends(s rollout.JobState) {
	for job, state := range m.jobs {
		if !state.Done && state.Failure == "" {
			m.jobs[job] = s
		}
	}
}

func (m *memory) has(name, config string) {
	m.change(name, func(n *rollout.Node) {
		n.Annotations[api.CurrentConfig], n.System = config, &api.JudgedSystem{Current: config, BootID: n.BootID}
	})
}

// TestHooks: a node gets its configuration after its first Job, and gives its slot back after the second; each runs once.
func TestHooks(t *testing.T) {
	m := hooked()
	given := func() string { return m.nodes["n3"].Annotations[api.DesiredConfig] }
	if s := m.settles(t); given() != "rendered-worker-1" || !strings.Contains(s.Waiting, "waits for n3, which waits for the Job ops/pivot-hook-") || !slices.Equal(s.Taken, []string{"n3"}) {
		t.Errorf("before its Job has ended: %s, %+v", given(), s)
	}
	m.ends(rollout.JobState{Exists: true, Done: true})
	if s := m.settles(t); given() != "rendered-worker-2" || len(s.Hooks) != 0 {
		t.Errorf("after it: %s, %+v", given(), s)
	}
	m.has("n3", "rendered-worker-2")
	if s := m.settles(t); !slices.Equal(s.Taken, []string{"n3"}) {
		t.Errorf("before the second Job has ended: %+v", s)
	}
	m.ends(rollout.JobState{Exists: true, Done: true})
	m.settles(t)
	if want := []string{"beforeDrain n3", "afterProof n3", "beforeDrain n2"}; !slices.Equal(m.ran, want) {
		t.Errorf("the Jobs are %q", m.ran)
	}
}

// TestFailedHooks: a Job that fails stops its node, which is named, until somebody deletes the Job; then it runs again. A node
// that a Job would have prepared serves on, without a slot. A node that is down gets its configuration without a Job.
func TestFailedHooks(t *testing.T) {
	m := hooked()
	m.settles(t)
	m.ends(rollout.JobState{Exists: true, Failure: "BackoffLimitExceeded: no"})
	for range 3 {
		if s := m.settles(t); len(s.Taken) > 0 || len(m.ran) != 1 || !strings.Contains(s.Waiting, "stopped: n3 has failed with rendered-worker-2; n3: its Job ops/pivot-hook-") || !strings.Contains(s.Waiting, "BackoffLimitExceeded") {
			t.Fatalf("after a failure: %q, %+v", m.ran, s)
		}
	}
	m.change("n1", func(n *rollout.Node) { n.Problem, n.NotReadySince = "is not Ready", m.now })
	clear(m.jobs)
	m.settles(t)
	if desired := m.nodes["n1"].Annotations[api.DesiredConfig]; desired != "rendered-worker-2" {
		t.Errorf("a node that is down has %s", desired)
	}
	m.has("n1", "rendered-worker-2")
	m.change("n1", func(n *rollout.Node) { n.Problem, n.NotReadySince = "", time.Time{} })
	m.settles(t)
	m.ends(rollout.JobState{Exists: true, Failure: "DeadlineExceeded"})
	if s := m.settles(t); !strings.Contains(s.Waiting, "stopped: n1 has failed") || !slices.Equal(s.Taken, []string{"n1"}) {
		t.Errorf("after the second Job has failed: %+v", s)
	}
	clear(m.jobs)
	m.settles(t)
	m.ends(rollout.JobState{Exists: true, Done: true})
	m.settles(t)
	if want := []string{"beforeDrain n3", "afterProof n1", "afterProof n1", "beforeDrain n3"}; !slices.Equal(m.ran, want) {
		t.Errorf("the Jobs are %q", m.ran)
	}
	m.now = m.now.Add(12 * time.Minute)
	if s := m.settles(t); !strings.Contains(s.Waiting, "it has not ended within 10m0s") {
		t.Errorf("a Job that nobody ends: %q", s.Waiting)
	}
}

// TestJobs: at a real API server, a copy of a suspended Job runs with the node's name and a limit, once. The node is named
// if that Job is not suspended, or the right is missing.
func TestJobs(t *testing.T) {
	w := newPlane(t, 1)
	w.ControlPlane.ApplyFile("../../../deploy/fleet/rbac-hooks.yaml")
	job := map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "prepare", "namespace": "default"}, "spec": map[string]any{"suspend": true, "backoffLimit": 1,
		"template": map[string]any{"spec": map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{"name": "c", "image": "i", "env": []any{map[string]any{"name": "A", "value": "b"}}}}}}}}
	w.ControlPlane.Apply(job)
	k := w.kube()
	controlplane.Eventually(t, "the rights of rollouts", func(ctx context.Context) bool { _, err := k.Fleet(ctx); return err == nil })
	run := rollout.Hook{HookRun: api.HookRun{Name: "n0", When: api.BeforeDrain, Config: "rendered-worker-2", Job: "default/pivot-hook-1", Since: v1.Now()}, Template: api.HookReference{Namespace: "default", Name: "prepare"}, Timeout: 5 * time.Minute}
	if err := k.Take(t.Context(), w.fleet(k).Pools[0], api.PoolRolloutStatus{Taken: []string{"n0"}, Hooks: []api.HookRun{run.HookRun}}); err != nil {
		t.Fatal(err)
	}
	try := func() rollout.JobState {
		t.Helper()
		if err := k.Run(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		return w.fleet(k).Jobs[run.Job]
	}
	if s := try(); s.Done || !strings.Contains(s.Problem, "forbidden") {
		t.Errorf("without the right: %+v", s)
	}
	w.ControlPlane.Apply(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": "hooks", "namespace": "default"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pivot-fleet-hooks"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "pivot-fleet-controller", "namespace": "pivot-fleet"}}})
	controlplane.Eventually(t, "the Job", func(context.Context) bool { return try() == rollout.JobState{Exists: true} })
	var made batchv1.Job
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "pivot-hook-1"}, &made); err != nil {
		t.Fatal(err)
	}
	want := []corev1.EnvVar{{Name: "PIVOT_NODE", Value: "n0"}, {Name: "PIVOT_CONFIG", Value: "rendered-worker-2"}, {Name: "A", Value: "b"}}
	if s := made.Spec; *s.Suspend || *s.ActiveDeadlineSeconds != 300 || *s.BackoffLimit != 1 || !slices.Equal(s.Template.Spec.Containers[0].Env, want) {
		t.Errorf("the Job is %+v", s)
	}
	if s := try(); s != (rollout.JobState{Exists: true}) {
		t.Errorf("a second time: %+v", s)
	}
	made.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}, {Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "DeadlineExceeded", Message: "too long"}}
	made.Status.StartTime = &v1.Time{Time: time.Now()}
	if err := w.Client.Status().Update(t.Context(), &made); err != nil {
		t.Fatal(err)
	}
	if s := w.fleet(k).Jobs[run.Job]; s.Failure != "DeadlineExceeded: too long" || !s.Exists {
		t.Errorf("a failed one: %+v", s)
	}
	run.Job, run.Template.Name = "default/pivot-hook-2", "pivot-hook-1"
	if err := k.Take(t.Context(), w.fleet(k).Pools[0], api.PoolRolloutStatus{Taken: []string{"n0"}, Hooks: []api.HookRun{run.HookRun}}); err != nil {
		t.Fatal(err)
	}
	if s := try(); !strings.Contains(s.Problem, "it is not suspended") {
		t.Errorf("one that is not suspended: %+v", s)
	}
}
