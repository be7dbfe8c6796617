package rollout

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
)

// Jobs of an administrator for a node: one before it gets another configuration, one after it is healthy with it. Each is an
// entry of the PoolRollout before it is created, and the entry has its name. So no Job runs twice for one change, whichever
// controllers are killed.

// JobState is the state of the Job of a hook.
type JobState struct {
	Exists, Done     bool
	Failure, Problem string // Problem is why it cannot be created or read now
}

// Hook is a Job that is to be created.
type Hook struct {
	api.HookRun
	Template api.HookReference
	Timeout  time.Duration
}

// askJobAgain is how often a Job is looked at.
const askJobAgain = 5 * time.Second

func (v *view) hookTimeout() time.Duration {
	if limit := v.pool.Spec.Hooks.Timeout.Duration; limit > 0 {
		return limit
	}
	return 10 * time.Minute
}

// isPrepared reports whether a node may get the target with respect to the Job before its drain. A node that is in change
// already, or is down, has nothing left that a Job could prepare.
func (v *view) isPrepared(m *member) bool {
	return m.hasBegun() || m.Problem != "" || v.hasRun(m, api.BeforeDrain, v.pool.Spec.Hooks.BeforeDrain)
}

// isApproved reports whether a node that was given the target, and is healthy with it, may give its slot back with respect to
// the Job after its proof.
func (v *view) isApproved(m *member) bool {
	begun := slices.ContainsFunc(v.pool.Rollout.Begun, func(b api.BegunNode) bool { return b.Name == m.Name })
	return !v.has(m) || !begun && v.hook(m.Name, api.AfterProof) == nil || v.hasRun(m, api.AfterProof, v.pool.Spec.Hooks.AfterProof)
}

// hook returns what is known of a node's Job for the target; nil if there is none.
func (v *view) hook(node, when string) *api.HookRun {
	i := slices.IndexFunc(v.pool.Rollout.Hooks, func(r api.HookRun) bool {
		return r.Name == node && r.When == when && r.Config == v.target
	})
	if i < 0 {
		return nil
	}
	return &v.pool.Rollout.Hooks[i]
}

// hookFailure returns why a Job for the target has failed on a node; "" if none has.
func (v *view) hookFailure(node string) string {
	for _, when := range []string{api.BeforeDrain, api.AfterProof} {
		if r := v.hook(node, when); r != nil && r.Failure != "" && v.jobs[r.Job].Exists && !v.jobs[r.Job].Done {
			return fmt.Sprintf("its Job %s, %s, has failed: %s", r.Job, when, r.Failure)
		}
	}
	return ""
}

// hasRun reports whether the Job of a node is done, and begins it if there is none. A failed one that somebody has deleted
// begins anew.
func (v *view) hasRun(m *member, when string, template *api.HookReference) bool {
	if template == nil {
		return true
	}
	r := api.HookRun{Name: m.Name, When: when, Config: v.target, Since: v.second()}
	r.Job = jobOf(r, template.Namespace)
	if known := v.hook(m.Name, when); known != nil && (known.Failure == "" || v.jobs[known.Job].Exists) {
		if r = *known; v.isFuture(r.Since) {
			r.Since = v.second()
		}
	}
	switch state := v.jobs[r.Job]; {
	case r.Done:
	case state.Done:
		r.Done, r.Failure = true, ""
	case r.Failure != "":
	case state.Failure != "":
		r.Failure = bounded(state.Failure)
	case v.now.Sub(r.Since.Time) > v.hookTimeout()+time.Minute && state.Exists: // nobody ends it
		r.Failure = fmt.Sprintf("it has not ended within %s", v.hookTimeout())
	case !state.Exists && v.hook(m.Name, when) != nil && known(v.pool.Rollout.Hooks, r):
		v.hooks = append(v.hooks, Hook{r, *template, v.hookTimeout()})
	}
	v.status.Hooks = append(v.status.Hooks, r)
	m.waitsFor = strings.TrimSuffix("waits for the Job "+r.Job+": "+cmp.Or(r.Failure, v.jobs[r.Job].Problem), ": ")
	v.remindAt(v.now.Add(askJobAgain))
	return r.Done
}

// known reports whether an entry is in the PoolRollout already: only then is its Job created.
func known(runs []api.HookRun, r api.HookRun) bool {
	return slices.ContainsFunc(runs, func(o api.HookRun) bool { return o.Job == r.Job })
}

// jobOf returns the namespace and the name of the Job of a run.
func jobOf(r api.HookRun, namespace string) string {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s\x00%s\x00%s\x00%d", r.Name, r.When, r.Config, r.Since.Unix())
	return fmt.Sprintf("%s/pivot-hook-%016x", namespace, sum.Sum64())
}

// keepFailedHooks keeps the Jobs that have failed with the target, until somebody deletes them.
func (v *view) keepFailedHooks() {
	for _, r := range v.pool.Rollout.Hooks {
		if r.Failure != "" && r.Config == v.target && v.isMember(r.Name) && v.jobs[r.Job].Exists && !known(v.status.Hooks, r) {
			v.status.Hooks = append(v.status.Hooks, r)
		}
	}
}
