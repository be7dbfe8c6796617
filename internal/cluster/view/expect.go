package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
)

// Expected is how long a rollout will take from now, as far as it is known.
type Expected struct {
	// Seconds is the time; 0 if it is unknown, or there is nothing to wait for.
	Seconds int64 `json:"seconds,omitempty"`
	// Measured is the number of nodes of this rollout that have finished, and PerNode the median of what they took,
	// in seconds.
	Measured int   `json:"measured,omitempty"`
	PerNode  int64 `json:"perNode,omitempty"`
	// Unknown is why it is unknown.
	Unknown string `json:"unknown,omitempty"`
}

// expected estimates the rest of a rollout by what its finished nodes took. Nothing else is a basis: another
// rollout had another image and other actions.
func expected(f Facts, p api.MachineConfigPool, out Pool) Expected {
	rest := out.Counts.Nodes - out.Counts.Updated
	switch {
	case out.State == StateUpdated:
		return Expected{}
	case out.State == StateUnknown:
		return Expected{Unknown: "it is unknown what the nodes should have, or have"}
	case p.Spec.Paused:
		return Expected{Unknown: "the pool is paused"}
	case out.State == StateDegraded:
		return Expected{Unknown: "a failure has to be ended first"}
	}
	took := measured(f.Events, out)
	if len(took) == 0 {
		return Expected{Unknown: "no node of this rollout has finished, or its events are gone"}
	}
	slices.Sort(took)
	median := took[len(took)/2]
	parallel, _ := api.MostUnavailable(p.Name, p.Spec.MaxUnavailable, out.Counts.Nodes) // the pool's condition names a wrong setting
	rounds := (rest + parallel - 1) / parallel
	return Expected{Seconds: int64(rounds) * int64(median/time.Second), Measured: len(took), PerNode: int64(median / time.Second)}
}

// measured returns how long each finished node took: from its event that the update to the target has started to
// the one that it is done. An update that was started again counts from its last start.
func measured(events []Event, out Pool) (took []time.Duration) {
	started, done := map[string]time.Time{}, map[string]time.Time{} // by node
	for _, e := range events {
		last := map[string]map[string]time.Time{api.EventUpdateStarted: started, api.EventDone: done}[e.Reason]
		if at := e.LastTimestamp.Time; last != nil && strings.HasSuffix(e.Message, " "+out.Target) && at.After(last[e.InvolvedObject.Name]) {
			last[e.InvolvedObject.Name] = at
		}
	}
	for _, m := range out.Machines {
		from, to := started[m.Name], done[m.Name]
		if m.Updated && !from.IsZero() && to.After(from) {
			took = append(took, to.Sub(from))
		}
	}
	return took
}

// String says it to people.
func (e Expected) String() string {
	switch {
	case e.Unknown != "":
		return "unknown: " + e.Unknown
	case e.Seconds == 0:
		return ""
	}
	return fmt.Sprintf("about %s: %s a node, measured on %d", age(time.Duration(e.Seconds)*time.Second),
		age(time.Duration(e.PerNode)*time.Second), e.Measured)
}
