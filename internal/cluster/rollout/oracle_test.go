package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// What must hold in a simulation at any time.

// checkLimits is the first invariant: of the nodes that a pool has begun to change, no more are disturbed than it may
// have, also if they have left it. It has asked no more for a download than it may.
func (s *simulation) checkLimits(call string) {
	count, asked, size := map[string][]string{}, map[string][]string{}, map[string]int{}
	for name, c := range s.machines {
		n := s.memory.nodes[name]
		if n == nil {
			continue
		}
		size[s.poolOf(n)]++
		if _, guarded := n.Annotations[rollout.Guarded]; s.begun[name] != "" && c.Disturbed() && !isAtRest(n) && !guarded { // one that lies seems to be at rest
			s.fault("limit: %s is disturbed, and others are not asked to leave it alone", name)
		}
		if pool := s.begun[name]; c.Disturbed() && !s.passedOn[name] {
			count[pool] = append(count[pool], name)
		} else if n.Annotations[api.Download] != "" {
			asked[s.asked[name]] = append(asked[s.asked[name]], name)
		}
	}
	for pool, l := range s.loads {
		wrong := l.Exceeded(pool, size[pool], asked[pool])
		if none := l.Number+l.Percent == 0; none && len(asked[pool]) > 0 {
			wrong = fmt.Sprintf("limit: %s of %s are asked, and none may be", asked[pool], pool)
		}
		if wrong != "" {
			s.fault("downloads: %s, after %s", wrong, call)
		}
	}
	for pool, l := range s.limits {
		if wrong := l.Exceeded(pool, size[pool], count[pool]); wrong != "" {
			s.fault("%s, after %s", wrong, call)
		}
	}
}

// checkGiven is the invariant of what is given, or to be downloaded: only what a pool of the node has or had. No
// cordoned node is given anything, and none begins that may not.
func (s *simulation) checkGiven(call, pool string, n *rollout.Node, config string, seen rollout.Fleet) {
	back := n.Annotations[api.DesiredConfig] != "" && config == s.machines[n.Name].Running || config == "" && n.Annotations[api.CurrentConfig] == ""
	back = back && strings.HasPrefix(n.Annotations[api.CannotStart], n.Annotations[api.DesiredConfig]+" ")
	if !back && !slices.ContainsFunc(s.poolsOf(n), func(pool string) bool { return s.targets[pool][config] }) {
		s.fault("%s of %s is given %s", n.Name, s.poolsOf(n), config)
	}
	if call == "ask" {
		s.asked[n.Name] = pool
		return
	}
	s.begun[n.Name], s.begunAt[n.Name] = pool, s.now
	delete(s.passedOn, n.Name)
	if n.Cordoned && n.Annotations[api.CordonedFor] == "" && !back { // what it runs does not disturb it
		s.fault("%s is given %s although it is cordoned", n.Name, config)
	}
	if p := poolIn(seen, pool); p.Spec.Hooks.BeforeDrain != nil && isAtRest(n) && n.Problem == "" && pool == s.poolOf(n) && !s.isPrepared(n.Name, config) {
		s.fault("%s is given %s before its Job has ended", n.Name, config)
	}
	if why := s.mayNotBegin(pool, config, seen); why != "" && isAtRest(n) && (pool == s.poolOf(n) || serves(n)) {
		s.fault("%s is given %s although %s", n.Name, config, why)
	}
}

// isPrepared reports whether a Job has ended that was to prepare a node for a configuration.
func (s *simulation) isPrepared(node, config string) bool {
	for job, state := range s.jobs {
		if h := s.hooks[job]; state.Done && h.Name == node && h.Config == config && h.When == api.BeforeDrain {
			return true
		}
	}
	return false
}

// checkTaken is the invariant of slots: none is taken while no node may begin. A node that has the target while a check
// of it fails gives none back.
func (s *simulation) checkTaken(pool string, status api.PoolRolloutStatus, seen rollout.Fleet) {
	for i := range seen.Pools {
		s.seesSize(seen.Pools[i].Name, seen)
	}
	before := s.memory.pools[pool].Rollout.Taken
	why := s.mayNotBegin(pool, status.Target, seen)
	for _, name := range status.Taken {
		if why != "" && !slices.Contains(before, name) {
			s.fault("%s takes a slot of %s although %s", name, pool, why)
		}
	}
	p := poolIn(seen, pool)
	s.checkPassedOn(p, status)
	for _, name := range before {
		i := slices.IndexFunc(seen.Nodes, func(n rollout.Node) bool { return n.Name == name })
		if slices.Contains(status.Taken, name) || i < 0 || s.passedOn[name] {
			continue
		}
		n := &seen.Nodes[i]
		if s.belongs(n, seen) != pool || n.Annotations[api.DesiredConfig] != status.Target || hasLeft(n) {
			continue
		}
		if p.Spec.Checks.Node != "" && !hasGPU(n) && status.Target == p.Configuration.Name {
			s.fault("%s gives its slot of %s back although it does not pass the check", name, pool)
		}
		if len(p.Spec.Checks.Workloads) > 0 && seen.Workloads[workloadOf(pool)] != "" {
			s.fault("%s gives its slot of %s back although the workload is not available", name, pool)
		}
	}
}

// checkPassedOn is the invariant of slots that are passed on: only if the pool wants that, and its node takes too long. A
// controller that was stopped may have begun to count some minutes before the node was given anything.
func (s *simulation) checkPassedOn(p rollout.Pool, status api.PoolRolloutStatus) {
	for _, b := range status.Begun {
		if !b.Late || slices.Contains(status.Taken, b.Name) || s.passedOn[b.Name] {
			continue
		}
		if since := s.begunAt[b.Name]; !p.Spec.PassSlotOn || p.Name == "master" || !s.skewed && s.now.Sub(since) < p.Spec.WorkingLimit.Duration-15*time.Minute {
			s.fault("limit: %s passes its slot of %s on, which it has had since %s", b.Name, p.Name, since)
		}
		s.passedOn[b.Name] = true
	}
}

// seesSize lets a controller count on as many nodes of a pool as it has seen: a percentage is of these.
func (s *simulation) seesSize(pool string, seen rollout.Fleet) {
	size := 0
	for i := range seen.Nodes {
		if s.belongs(&seen.Nodes[i], seen) == pool {
			size++
		}
	}
	s.limits[pool].Sees(size)
	s.loads[pool].Sees(size)
}

// serves reports whether nothing speaks against a node.
func serves(n *rollout.Node) bool {
	return n.Problem == "" && n.System.Unproven(n.Annotations[api.CurrentConfig], n.BootID) == "" && hasGPU(n)
}

// isAtRest reports whether a node is in no change.
func isAtRest(n *rollout.Node) bool {
	return n.Annotations[api.CurrentConfig] == n.Annotations[api.DesiredConfig] && n.Annotations[api.StateOfNode] == api.StateDone && n.Annotations[api.CordonedFor] == ""
}

// hasLeft reports whether a node has another system than it was given, and waits until it is given that again.
func hasLeft(n *rollout.Node) bool {
	desired := n.Annotations[api.DesiredConfig]
	return n.Annotations[api.CurrentConfig] == desired && n.Annotations[api.FailedConfig] == desired && n.Annotations[api.StateOfNode] == api.StateDegraded
}

// mayNotBegin returns why no node of a pool may begin with a target, by what its controller has seen; "" if nothing of
// what is checked here speaks against it.
func (s *simulation) mayNotBegin(pool, target string, seen rollout.Fleet) string {
	p := poolIn(seen, pool)
	spec := p.Spec
	switch {
	case p.Paused:
		return "the pool is paused"
	case p.Orphan, p.Deleted:
		return "the pool or its PoolRollout is deleted"
	case spec.Window != "" && !isOpen(spec.Window, seen.Now):
		return "the window " + spec.Window + " is closed"
	case len(spec.Checks.Workloads) > 0 && seen.Workloads[workloadOf(pool)] != "":
		return "the workload is not available"
	}
	for i := range seen.Nodes {
		n := &seen.Nodes[i]
		current, desired := n.Annotations[api.CurrentConfig], n.Annotations[api.DesiredConfig]
		if s.belongs(n, seen) == pool && spec.Checks.Node != "" && current == p.Configuration.Name && desired == current && target == current && n.System.Current == current && !hasGPU(n) {
			return n.Name + " does not pass the check"
		}
		if slices.Contains(spec.After, "master") && s.belongs(n, seen) == "master" && (current != desired || desired != poolIn(seen, "master").Configuration.Name) {
			return "master has not arrived"
		}
	}
	return ""
}

func poolIn(f rollout.Fleet, name string) rollout.Pool {
	i := slices.IndexFunc(f.Pools, func(p rollout.Pool) bool { return p.Name == name })
	if i < 0 {
		return rollout.Pool{Orphan: true}
	}
	return f.Pools[i]
}

// isOpen reports whether a window of the administrator is open. It is read here by a way of its own.
func isOpen(text string, now time.Time) bool {
	var from, to [2]int
	if _, err := fmt.Sscanf(text, "Mon,Tue %d:%d-%d:%d UTC", &from[0], &from[1], &to[0], &to[1]); err != nil {
		panic(fmt.Sprintf("the window %q: %v", text, err))
	}
	at, opens, closes := now.Hour()*60+now.Minute(), from[0]*60+from[1], to[0]*60+to[1]
	if opens < closes {
		return at >= opens && at < closes
	}
	return at >= opens || at < closes
}

// poolsOf returns the pools that a node belongs to, or may after one of them is deleted.
func (s *simulation) poolsOf(n *rollout.Node) (pools []string) {
	for _, pool := range []string{"master", "infra", "worker"} {
		if _, ok := n.Labels[role(pool)]; ok {
			if pools = append(pools, pool); pool == "master" {
				break
			}
		}
	}
	return pools
}

// poolOf returns the pool to which a node belongs.
func (s *simulation) poolOf(n *rollout.Node) string {
	pools := s.poolsOf(n)
	if pools[0] == "infra" && s.memory.pools["infra"].Orphan {
		return pools[1]
	}
	return pools[0]
}

// belongs is poolOf for a fleet that a controller has seen.
func (s *simulation) belongs(n *rollout.Node, seen rollout.Fleet) string {
	pools := s.poolsOf(n)
	if pools[0] == "infra" && poolIn(seen, "infra").Orphan {
		return pools[1]
	}
	return pools[0]
}

// lacksGPU is an annotation of the nodes that do not pass the check of the pools that have one.
const (
	lacksGPU        = "example.com/lacks-gpu"
	expressionOfGPU = `!("example.com/lacks-gpu" in node.metadata.annotations)`
)

// passes returns the check of the pools, as the product evaluates it.
func passes() func(n *rollout.Node) bool {
	check, err := rollout.CompileCheck(expressionOfGPU)
	if err != nil {
		panic(err) // it is a constant
	}
	return func(n *rollout.Node) bool {
		annotations := map[string]any{}
		for name, value := range n.Annotations {
			annotations[name] = value
		}
		holds, err := check.Holds(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		return err == nil && holds
	}
}

func hasGPU(n *rollout.Node) bool {
	_, lacks := n.Annotations[lacksGPU]
	return !lacks
}
