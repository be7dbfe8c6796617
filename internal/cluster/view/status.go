package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"machine-pivot/internal/cluster/api"
)

// Status is a fleet as a person wants to see it. Its texts are on one line each, printable and without
// credentials of URLs.
type Status struct {
	Pools []Pool `json:"pools"`
	// Unpooled are the nodes that no pool selects.
	Unpooled []Machine `json:"unpooled"`
	// Missing is what could not be read, and why.
	Missing []string `json:"missing"`
}

// Pool is one pool with its nodes.
type Pool struct {
	Name   string `json:"name"`
	State  string `json:"state"`            // one of the states below
	Target string `json:"target,omitempty"` // the MachineConfig that its nodes are given
	Counts Counts `json:"counts"`
	// Waiting is what the rollout waits for, in one sentence; empty for nothing.
	Waiting  string    `json:"waiting,omitempty"`
	Problems []string  `json:"problems"` // conditions that say that something is wrong
	Expected Expected  `json:"expected"`
	Machines []Machine `json:"nodes"`
}

// The states of a pool, the most urgent first.
const (
	StateDegraded = "degraded" // a node or the merge has failed
	StatePaused   = "paused"   // and not all nodes have the target
	StateUpdating = "updating"
	StateUpdated  = "updated" // each node has the target
	StateUnknown  = "unknown" // the pool has no target or no nodes, or its nodes cannot be read
)

// Counts are numbers of nodes.
type Counts struct {
	Nodes    int `json:"nodes"`
	Updated  int `json:"updated"` // have the target, proven
	Working  int `json:"working"`
	Degraded int `json:"degraded"`
	// Unavailable are not ready, or cordoned.
	Unavailable int `json:"unavailable"`
}

// Machine is one node.
type Machine struct {
	Name    string `json:"name"`
	State   string `json:"state"` // as its annotation says: Done, Working, Degraded, Unreconcilable; none: ""
	Current string `json:"current,omitempty"`
	Desired string `json:"desired,omitempty"`
	// Step is the agent's action, or the step of pivot's run; Percent is of that step, 0 if it is unknown.
	Step        string `json:"step,omitempty"`
	Percent     int    `json:"percent,omitempty"`
	BytesPulled int64  `json:"bytesPulled,omitempty"`
	Ready       bool   `json:"ready"`
	Cordoned    bool   `json:"cordoned"`
	Taken       bool   `json:"taken"` // it is one of those that may be unavailable because of the rollout
	// Reason is why the node has failed, or what it waits for.
	Reason string `json:"reason,omitempty"`
	// MissingArguments are kernel arguments that the running kernel lacks.
	MissingArguments []string `json:"missingArguments,omitempty"`
	// Updated reports whether it has the target of its pool, proven.
	Updated bool `json:"updated"`
}

// Judge returns the status of the named pool, or of all pools if name is empty. ok is false if there is no pool
// of that name.
func Judge(f Facts, name string) (s Status, ok bool) {
	s = Status{Pools: []Pool{}, Unpooled: []Machine{}, Missing: append([]string{}, f.Missing...)}
	for i := range s.Missing {
		s.Missing[i] = api.BoundedReason(s.Missing[i])
	}
	systems := map[string]api.NodeSystemStatus{}
	for _, system := range f.Systems {
		systems[system.Name] = system.Status
	}
	nodes := map[string][]Node{}
	for _, n := range f.Nodes {
		in := poolOf(n.Metadata.Labels, f.Pools)
		nodes[in] = append(nodes[in], n)
	}
	for _, p := range f.Pools {
		if name == "" || p.Name == name {
			s.Pools = append(s.Pools, judgePool(f, p, nodes[p.Name], systems))
		}
	}
	slices.SortFunc(s.Pools, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
	if name != "" {
		return s, len(s.Pools) > 0
	}
	for _, n := range nodes[""] {
		s.Unpooled = append(s.Unpooled, machine(n, "", systems[n.Metadata.Name], api.PoolRolloutStatus{}))
	}
	sortMachines(s.Unpooled)
	return s, true
}

// judgePool judges one pool.
func judgePool(f Facts, p api.MachineConfigPool, nodes []Node, systems map[string]api.NodeSystemStatus) Pool {
	var rollout api.PoolRolloutStatus
	for _, r := range f.Rollouts {
		if r.Name == p.Name {
			rollout = r.Status
		}
	}
	out := Pool{Name: api.BoundedReason(p.Name), Target: cmp.Or(rollout.Target, p.Spec.Configuration.Name), Problems: problems(p), Machines: []Machine{}}
	for _, n := range nodes {
		m := machine(n, out.Target, systems[n.Metadata.Name], rollout)
		out.Machines = append(out.Machines, m)
		if api.MembershipOf(n.Metadata.Labels, n.Metadata.Annotations) != api.LeftAlone {
			out.Counts.add(m)
		}
	}
	sortMachines(out.Machines)
	out.State = state(p, out)
	if rollout.Waiting != "" || out.State != StateUpdated {
		out.Waiting = waiting(p, rollout)
	}
	out.Expected = expected(f, p, out)
	out.Target = api.BoundedReason(out.Target)
	return out
}

func (c *Counts) add(m Machine) {
	c.Nodes++
	if m.Updated {
		c.Updated++
	}
	switch m.State {
	case api.StateWorking:
		c.Working++
	case api.StateDegraded, api.StateUnreconcilable:
		c.Degraded++
	}
	if !m.Ready || m.Cordoned {
		c.Unavailable++
	}
}

func state(p api.MachineConfigPool, out Pool) string {
	switch {
	case out.Counts.Degraded > 0 || len(out.Problems) > 0:
		return StateDegraded
	case out.Target == "" || out.Counts.Nodes == 0: // zero of zero is no success
		return StateUnknown
	case out.Counts.Updated == out.Counts.Nodes:
		return StateUpdated
	case p.Spec.Paused:
		return StatePaused
	}
	return StateUpdating
}

// problems returns the messages of the conditions that say that something is wrong. PoolDegraded is the sum of
// the two others, and repeats them.
func problems(p api.MachineConfigPool) []string {
	out := []string{}
	for _, c := range p.Status.Conditions {
		if c.Status == api.True && slices.Contains([]string{api.PoolRenderDegraded, api.PoolNodeDegraded}, c.Type) {
			out = append(out, c.Type+": "+api.BoundedReason(cmp.Or(c.Message, c.Reason)))
		}
	}
	slices.Sort(out)
	return out
}

// waiting returns what a rollout says that it waits for. The operator's own controllers say it in the condition.
func waiting(p api.MachineConfigPool, rollout api.PoolRolloutStatus) string {
	if rollout.Waiting != "" {
		return api.BoundedReason(rollout.Waiting)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == api.PoolUpdating && c.Message != "" {
			return api.BoundedReason(c.Message)
		}
	}
	if p.Spec.Paused {
		return "the pool is paused: spec.paused is true"
	}
	return ""
}

// machine judges one node.
func machine(n Node, target string, system api.NodeSystemStatus, rollout api.PoolRolloutStatus) Machine {
	a := n.Metadata.Annotations
	m := Machine{
		Name: api.BoundedReason(n.Metadata.Name), State: api.BoundedReason(a[api.StateOfNode]),
		Current: api.BoundedReason(a[api.CurrentConfig]), Desired: api.BoundedReason(a[api.DesiredConfig]),
		Step: api.BoundedReason(system.Step), Ready: n.ready(), Cordoned: n.Spec.Unschedulable,
		Taken: slices.Contains(rollout.Taken, n.Metadata.Name), Reason: api.BoundedReason(a[api.Reason]),
	}
	if p := system.Progress; p != nil {
		m.Step, m.Percent, m.BytesPulled = api.BoundedReason(p.Step), min(max(p.Percent, 0), 100), max(p.BytesPulled, 0)
	}
	for _, argument := range system.KernelArguments.Missing {
		m.MissingArguments = append(m.MissingArguments, api.BoundedReason(argument))
	}
	unproven := ""
	if m.State == api.StateDone {
		unproven = api.SystemOf(system).Unproven(a[api.CurrentConfig], n.Status.NodeInfo.BootID)
	}
	m.Reason = cmp.Or(m.Reason, cannot(n, target), failed(n.Metadata.Name, rollout), api.BoundedReason(unproven))
	m.Updated = api.HasConfig(target, a, unproven)
	return m
}

// cannot returns why a node cannot start the image of its pool's target; "" if it does not say so in this boot.
func cannot(n Node, target string) string {
	c := api.CannotOf(n.Metadata.Annotations[api.CannotStart])
	if target == "" || c.Config != target || c.BootID != n.Status.NodeInfo.BootID {
		return ""
	}
	return api.BoundedReason(c.Verdicts + ": " + c.Reason)
}

// failed returns why the controller counts a node as failed.
func failed(name string, rollout api.PoolRolloutStatus) string {
	for _, f := range rollout.Failed {
		if f.Name == name {
			return api.BoundedReason(cmp.Or(f.Reason, "the controller counts it as failed"))
		}
	}
	return ""
}

// sortMachines puts first what a person looks for: nodes that have failed, then those that are being changed,
// then those that wait, then those that are done.
func sortMachines(all []Machine) {
	rank := func(m Machine) int {
		switch {
		case m.State == api.StateDegraded || m.State == api.StateUnreconcilable:
			return 0
		case m.State == api.StateWorking || m.Taken:
			return 1
		case !m.Updated:
			return 2
		}
		return 3
	}
	slices.SortFunc(all, func(a, b Machine) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Name, b.Name)) })
}

// age returns a duration as people say it: 45s, 12m, 3h05m.
func age(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
