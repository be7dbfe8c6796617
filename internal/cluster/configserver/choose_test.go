package configserver

import (
	"testing"

	"machine-pivot/internal/cluster/api"
)

func TestChoose(t *testing.T) {
	const old, next = "rendered-worker-1", "rendered-worker-2"
	for name, c := range map[string]struct {
		wanted, last      string
		machines, updated int32
		stale             bool // nobody has counted the machines of the new one
		givenUp           string
		want              string
	}{
		"nothing rendered":      {want: ""},
		"a new pool":            {wanted: next, want: next},
		"at rest":               {wanted: old, last: old, machines: 3, updated: 3, want: old},
		"a rollout, not proven": {wanted: next, last: old, machines: 3, want: old},
		"a rollout, proven":     {wanted: next, last: old, machines: 3, updated: 1, want: next},
		"a rollout, and the counters are of before": {wanted: next, last: old, machines: 3, updated: 3, stale: true, want: old},
		"a pool without machines":                   {wanted: next, last: old, want: next},
		"given up after a canary":                   {wanted: next, last: old, machines: 3, updated: 1, givenUp: next, want: old},
		"another one was given up before":           {wanted: next, last: old, machines: 3, updated: 1, givenUp: "rendered-worker-0", want: next},
		"given up in a new pool":                    {wanted: next, machines: 1, givenUp: next, want: next},
		"not rendered any more":                     {last: old, want: old},
	} {
		p := &api.MachineConfigPool{}
		p.Generation, p.Status.ObservedGeneration = 2, 2
		if c.stale {
			p.Status.ObservedGeneration = 1
		}
		p.Spec.Configuration.Name, p.Status.Configuration.Name = c.wanted, c.last
		p.Status.MachineCount, p.Status.UpdatedMachineCount = c.machines, c.updated
		var rollout *api.PoolRollout
		if c.givenUp != "" {
			rollout = &api.PoolRollout{Status: api.PoolRolloutStatus{GivenUp: c.givenUp}}
		}
		if got := choose(p, rollout); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
