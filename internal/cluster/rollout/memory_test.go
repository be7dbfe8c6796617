package rollout_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"

	corev1 "k8s.io/api/core/v1"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// memory is a cluster in memory: objects with versions, and updates that fail if the version is another.
type memory struct {
	now       time.Time
	version   int
	nodes     map[string]*rollout.Node
	pools     map[string]*rollout.Pool
	order     []string // of the pools
	requests  int
	events    int
	workloads map[api.WorkloadReference]string
	healthy   func(n *rollout.Node) bool // the expression of the pools' checks
	check     func(what string)          // after each request that changes something
	// given is told before a pool gives a node a configuration, or asks it for a download; took is told before the
	// status of a PoolRollout is written. Both are told of the fleet that the controller has decided on.
	given     func(call, pool string, n *rollout.Node, config string, seen rollout.Fleet)
	took      func(pool string, s api.PoolRolloutStatus, seen rollout.Fleet)
	forgotten func(pool string) // is told that a PoolRollout is gone
	asks      int               // for downloads
	jobs      map[string]rollout.JobState
	ran       []string                // of jobs
	hooks     map[string]rollout.Hook // of jobs
	ignoreCAS func(kind string) bool  // a broken API server; nil: none
	denied    map[string]bool         // nodes of which somebody's webhook denies each change by a controller
}

func newMemory() *memory {
	return &memory{nodes: map[string]*rollout.Node{}, pools: map[string]*rollout.Pool{}, workloads: map[api.WorkloadReference]string{}, jobs: map[string]rollout.JobState{}, hooks: map[string]rollout.Hook{}, denied: map[string]bool{},
		now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}
}

func (m *memory) next() string { m.version++; return strconv.Itoa(m.version) }

// Now implements simnodes.Cluster.
func (m *memory) Now() time.Time { return m.now }

// Node implements simnodes.Cluster.
func (m *memory) Node(name string) *rollout.Node { return m.nodes[name] }

// Change implements simnodes.Cluster. It replaces a node by a changed copy.
func (m *memory) Change(name string, change func(n *rollout.Node)) { m.change(name, change) }

func (m *memory) change(name string, change func(n *rollout.Node)) {
	n := *m.nodes[name]
	n.Annotations, n.Labels = maps.Clone(n.Annotations), maps.Clone(n.Labels)
	change(&n)
	n.Version = m.next()
	m.nodes[name] = &n
}

func (m *memory) changePool(name string, change func(p *rollout.Pool)) {
	p := *m.pools[name]
	change(&p)
	m.pools[name] = &p
}

// changeRollout changes the PoolRollout of a pool, and creates it if there is none.
func (m *memory) changeRollout(name string, change func(p *rollout.Pool)) {
	m.changePool(name, func(p *rollout.Pool) {
		change(p)
		p.RolloutVersion = m.next()
	})
	m.vanish(name)
}

// deleteRollout deletes the PoolRollout of a pool, as an administrator does.
func (m *memory) deleteRollout(name string) {
	if m.pools[name].RolloutVersion != "" {
		m.changeRollout(name, func(p *rollout.Pool) { p.Deleted = true })
	}
}

// vanish removes a PoolRollout that is deleted and has no finalizer, as an API server does.
func (m *memory) vanish(name string) {
	if p := m.pools[name]; p.Deleted && len(p.Finalizers) == 0 {
		m.changePool(name, func(p *rollout.Pool) { setRollout(p, rollout.Pool{}) })
		if m.forgotten != nil {
			m.forgotten(name)
		}
	}
}

func (m *memory) broken(kind string) bool { return m.ignoreCAS != nil && m.ignoreCAS(kind) }

// access is that of one controller, with caches that may be old.
type access struct {
	*memory
	nodes map[string]*rollout.Node
	pools map[string]*rollout.Pool
	self  string
	pause func(call string) bool // between requests; false: the controller was killed
	seen  rollout.Fleet          // what was decided on last
	acts  string                 // the pool of the decision that is carried out

	skew    time.Duration        // of its clock
	refused map[string]time.Time // when changes of nodes were denied
	down    map[string]time.Time // since when it sees that nodes are not Ready, as Kube does; nil: what the nodes say
}

func (m *memory) access(self string) *access {
	c := &access{memory: m, self: self, pause: func(string) bool { return true }}
	c.relist()
	return c
}

// relist makes the caches new.
func (c *access) relist() {
	c.nodes, c.pools = maps.Clone(c.memory.nodes), maps.Clone(c.memory.pools)
}

// refresh makes some objects of the caches new.
func (c *access) refresh(some func() bool) {
	for _, name := range slices.Sorted(maps.Keys(c.memory.nodes)) {
		if n := c.memory.nodes[name]; c.nodes[name] != n && some() {
			c.nodes[name] = n
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		if c.memory.nodes[name] == nil && some() {
			delete(c.nodes, name)
		}
	}
	for _, name := range c.order {
		if some() {
			now := *c.memory.pools[name]
			setRollout(&now, *c.pools[name])
			c.pools[name] = &now
		}
		if some() { // the PoolRollout is another object
			old := *c.pools[name]
			setRollout(&old, *c.memory.pools[name])
			c.pools[name] = &old
		}
	}
}

// setRollout replaces what a pool has of its PoolRollout.
func setRollout(p *rollout.Pool, of rollout.Pool) {
	p.RolloutVersion, p.Spec, p.Rollout, p.Finalizers, p.Deleted = of.RolloutVersion, of.Spec, of.Rollout, of.Finalizers, of.Deleted
}

var errKilled = fmt.Errorf("killed")

func (c *access) request(call string) error {
	if !c.pause(call) {
		return errKilled
	}
	c.requests++
	return nil
}

// done ends a request, after which the controller may be killed, too.
func (c *access) done(call string) error {
	if c.check != nil {
		c.check(call)
	}
	if !c.pause("after " + call) {
		return errKilled
	}
	return nil
}

func (c *access) Fleet(context.Context) (rollout.Fleet, error) {
	f := rollout.Fleet{Now: c.now.Add(c.skew), Self: c.self, Workloads: maps.Clone(c.workloads), Jobs: maps.Clone(c.jobs)}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		f.Nodes = append(f.Nodes, c.seesNode(name, f.Now))
	}
	for _, name := range c.order {
		p := *c.pools[name]
		if p.Orphan {
			left := rollout.Pool{Name: name, Orphan: true}
			if setRollout(&left, p); len(left.Rollout.Taken)+len(left.Rollout.Downloads) == 0 && !slices.Contains(left.Finalizers, rollout.Finalizer) {
				continue
			}
			left.Spec = api.PoolRolloutSpec{}
			p = left
		}
		f.Pools = append(f.Pools, p)
	}
	c.checkNodes(f)
	c.seen = f
	return f, nil
}

// seesNode returns a node as a controller knows it, by its own clock.
func (c *access) seesNode(name string, now time.Time) rollout.Node {
	n := *c.nodes[name]
	if at, refused := c.refused[name]; refused {
		if n.Denied = "denied"; now.Sub(at).Abs() < time.Minute {
			n.Refused = n.Denied
		}
	}
	if c.down == nil {
		return n
	}
	since, known := c.down[name]
	if delete(c.down, name); n.Problem == "is not Ready" {
		if !known {
			since = now
		}
		c.down[name], n.NotReadySince = since, since
	} else {
		n.NotReadySince = time.Time{}
	}
	return n
}

// deny returns an error if somebody denies a change of a node.
func (c *access) deny(node string) error {
	if !c.denied[node] {
		delete(c.refused, node)
		return nil
	}
	if c.refused == nil {
		c.refused = map[string]time.Time{}
	}
	c.refused[node] = c.now.Add(c.skew)
	return fmt.Errorf("node %s: %w", node, rollout.ErrRefused)
}

// checkNodes evaluates the expression of the pool that claims a node.
func (c *access) checkNodes(f rollout.Fleet) {
	for i := range f.Nodes {
		n := &f.Nodes[i]
		var selecting []string
		for _, p := range f.Pools {
			if _, selected := n.Labels[role(p.Name)]; selected && !p.Orphan {
				selecting = append(selecting, p.Name)
			}
		}
		claimed := api.ClaimedBy(selecting)
		if len(claimed) != 1 {
			continue
		}
		p := poolIn(f, claimed[0])
		if p.Spec.Checks.Node != "" && n.Annotations[api.CurrentConfig] == p.Configuration.Name && !c.healthy(n) {
			n.Check = "spec.checks.node is false"
		}
	}
}

func (c *access) fresh(n rollout.Node, kind string) error {
	if now := c.memory.nodes[n.Name]; now == nil || now.Version != n.Version && !c.broken(kind) {
		return rollout.ErrConflict
	}
	return nil
}

func (c *access) Fence(_ context.Context, n rollout.Node, token string) error {
	if err := c.request("fence"); err != nil {
		return err
	}
	if c.broken("no fence") {
		return nil
	}
	if err := cmp.Or(c.fresh(n, "fence"), c.deny(n.Name)); err != nil {
		return err
	}
	if n.Annotations[rollout.Released] != token || n.Annotations[api.Download] != "" || len(n.Taints) > 0 {
		c.change(n.Name, func(n *rollout.Node) {
			n.Annotations[rollout.Released], n.Taints = token, nil
			if n.Annotations[rollout.Guarded] == "{}" {
				n.Annotations[rollout.Guarded] = until(c.now.Add(10 * time.Minute))
			}
			delete(n.Annotations, api.Download)
		})
	}
	return c.done("fence")
}

func until(t time.Time) string { return `{"until":"` + t.Format(time.RFC3339) + `"}` }

func (c *access) Exists(_ context.Context, node string) (bool, error) {
	if err := c.request("exists"); err != nil {
		return false, err
	}
	return c.memory.nodes[node] != nil && !c.broken("exists"), nil
}

func (c *access) Take(_ context.Context, p rollout.Pool, s api.PoolRolloutStatus) error {
	if err := c.request("take"); err != nil {
		return err
	}
	if p.RolloutVersion == "" {
		if c.memory.pools[p.Name].RolloutVersion != "" {
			return rollout.ErrConflict
		}
		c.changeRollout(p.Name, func(p *rollout.Pool) {
			if len(s.Taken)+len(s.Downloads) > 0 && !c.broken("no finalizer") {
				p.Finalizers = []string{rollout.Finalizer}
			}
		})
		p.RolloutVersion = c.memory.pools[p.Name].RolloutVersion
		if err := c.done("create"); err != nil {
			return err
		}
	}
	now := c.memory.pools[p.Name]
	if now.RolloutVersion == "" || now.RolloutVersion != p.RolloutVersion && !c.broken("take") {
		return rollout.ErrConflict
	}
	if c.acts = p.Name; c.took != nil {
		c.took(p.Name, s, c.seen)
	}
	if !reflect.DeepEqual(now.Rollout, s) { // else an API server leaves the version as it is
		c.changeRollout(p.Name, func(p *rollout.Pool) { p.Rollout = s })
	}
	return c.done("take")
}

func (c *access) Hold(_ context.Context, p rollout.Pool, finalizers []string) (string, error) {
	if err := c.request("hold"); err != nil {
		return "", err
	}
	if c.broken("no finalizer") {
		return p.RolloutVersion, nil
	}
	if now := c.memory.pools[p.Name]; now.RolloutVersion == "" || now.RolloutVersion != p.RolloutVersion {
		return "", rollout.ErrConflict
	}
	version := c.next()
	c.changePool(p.Name, func(p *rollout.Pool) { p.Finalizers, p.RolloutVersion = finalizers, version })
	c.vanish(p.Name)
	return version, c.done("hold")
}

func (c *access) Give(_ context.Context, given rollout.Change) error {
	n, config := given.Node, given.Config
	if err := c.request("give"); err != nil {
		return err
	}
	if err := cmp.Or(c.fresh(n, "give"), c.deny(n.Name)); err != nil {
		return err
	}
	if c.given != nil {
		c.given("give", c.acts, c.memory.nodes[n.Name], config, c.seen)
	}
	c.change(n.Name, func(n *rollout.Node) {
		n.Annotations[api.DesiredConfig], n.Annotations[rollout.Guarded] = config, "{}"
		delete(n.Annotations, api.Download)
		if config == "" {
			delete(n.Annotations, api.DesiredConfig)
		}
		if n.Annotations[api.FailedConfig] == config {
			delete(n.Annotations, api.FailedConfig)
		}
	})
	return c.done("give")
}

func (c *access) AskDownload(_ context.Context, n rollout.Node, config string) error {
	if err := c.request("ask"); err != nil {
		return err
	}
	if err := cmp.Or(c.fresh(n, "ask"), c.deny(n.Name)); err != nil {
		return err
	}
	if c.given != nil {
		c.given("ask", c.acts, c.memory.nodes[n.Name], config, c.seen)
	}
	c.asks++
	c.change(n.Name, func(n *rollout.Node) { n.Annotations[api.Download] = config })
	return c.done("ask")
}

func (c *access) Run(_ context.Context, h rollout.Hook) error {
	if err := c.request("run"); err != nil {
		return err
	}
	if _, ran := c.jobs[h.Job]; !ran {
		c.ran = append(c.ran, h.When+" "+h.Name)
		c.jobs[h.Job] = rollout.JobState{Exists: true}
		c.hooks[h.Job] = h
	}
	return c.done("run")
}

func (c *access) Mark(_ context.Context, m rollout.Marked) error {
	n := m.Node
	if err := c.request("mark"); err != nil {
		return err
	}
	if err := c.fresh(n, "mark"); err != nil || c.denied[n.Name] {
		return err // who denies the marks is asked again later
	}
	c.change(n.Name, func(n *rollout.Node) {
		if n.Taints = nil; m.Pending {
			n.Taints = []corev1.Taint{{Key: rollout.Pending}}
		}
		if m.Unguard {
			delete(n.Annotations, rollout.Guarded)
		} else if !m.GuardEnd.IsZero() {
			n.Annotations[rollout.Guarded] = until(m.GuardEnd)
		}
	})
	return c.done("mark")
}

func (c *access) Show(_ context.Context, p rollout.Pool, s api.MachineConfigPoolStatus) error {
	if err := c.request("show"); err != nil {
		return err
	}
	if now := c.memory.pools[p.Name]; now.Orphan || now.Version != p.Version {
		return rollout.ErrConflict
	}
	c.changePool(p.Name, func(p *rollout.Pool) { p.Status, p.Version = s, c.next() })
	return c.done("show")
}

func (c *access) Record(context.Context, rollout.Pool, rollout.Event) error {
	c.events++
	return c.request("record")
}

// addPool adds a pool for the nodes with a role.
func (m *memory) addPool(name, config string) {
	m.order = append(m.order, name)
	m.pools[name] = &rollout.Pool{Name: name, Version: m.next(), Configuration: api.PoolConfiguration{Name: config},
		Selector: &v1.LabelSelector{MatchLabels: map[string]string{role(name): ""}}}
}

func role(pool string) string { return "node-role.kubernetes.io/" + pool }

// addNode adds a node that has a configuration.
func (m *memory) addNode(name, config string, labels map[string]string) {
	m.nodes[name] = &rollout.Node{Name: name, Version: m.next(), Labels: labels, Created: m.now.Add(-time.Hour), BootID: name + "-0",
		System:      &api.JudgedSystem{Current: config, BootID: name + "-0"},
		Annotations: map[string]string{api.DesiredConfig: config, api.CurrentConfig: config, api.StateOfNode: api.StateDone}}
}
