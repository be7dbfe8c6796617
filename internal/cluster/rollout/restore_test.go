package rollout_test

import (
	"maps"
	"slices"
	"time"

	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/simnodes"
)

// backup is what etcd had at a time, and what this world knew of it then.
type backup struct {
	nodes           map[string]*rollout.Node
	pools           map[string]*rollout.Pool
	jobs            map[string]rollout.JobState
	hooks           map[string]rollout.Hook
	loads           map[string]*simnodes.Limit
	begun, asked    map[string]string
	begunAt         map[string]time.Time
	passedOn, moves map[string]bool // moves: nodes that were disturbed
}

// backUp is what an administrator does each night.
func (s *simulation) backUp() {
	s.backup = &backup{nodes: maps.Clone(s.memory.nodes), pools: maps.Clone(s.memory.pools), jobs: maps.Clone(s.jobs), hooks: maps.Clone(s.hooks),
		loads: maps.Clone(s.loads), begun: maps.Clone(s.begun), asked: maps.Clone(s.asked), begunAt: maps.Clone(s.begunAt), passedOn: maps.Clone(s.passedOn), moves: map[string]bool{}}
	for name, c := range s.machines {
		s.backup.moves[name] = c.Disturbed()
	}
}

// restore restores etcd, with new versions of all objects, and without controllers meanwhile. Machines go on with what they
// do; kubelet and agents report at once how they are. A node that came later registers anew.
func (s *simulation) restore() {
	b := s.backup
	if b == nil {
		return
	}
	s.backup = nil
	s.faults["restored etcd"]++
	for _, p := range s.controllers {
		s.kill(p)
	}
	for _, name := range slices.Sorted(maps.Keys(s.machines)) {
		now, n := s.memory.nodes[name], rollout.Node{Name: name, Created: s.now, Labels: s.memory.nodes[name].Labels, Annotations: map[string]string{}}
		if old := b.nodes[name]; old != nil {
			n = *old
		}
		n.Problem, n.NotReadySince, n.BootID, n.System, n.Version = now.Problem, now.NotReadySince, now.BootID, now.System, s.next()
		s.memory.nodes[name] = &n
	}
	for name, p := range b.pools {
		was := *p
		if was.Version = s.next(); was.RolloutVersion != "" {
			was.RolloutVersion = s.next()
		}
		s.memory.pools[name] = &was
	}
	s.jobs, s.hooks, s.loads, s.begun, s.asked, s.begunAt, s.passedOn = b.jobs, b.hooks, b.loads, b.begun, b.asked, b.begunAt, b.passedOn
	for name, c := range s.machines {
		if c.Disturbed() && !b.moves[name] { // nobody knows that it was given anything
			delete(s.begun, name)
		}
	}
	for _, p := range s.controllers {
		s.forget(p)
	}
}
