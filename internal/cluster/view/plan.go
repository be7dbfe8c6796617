package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/update"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// Plan is what MachineConfigs would do to a fleet.
type Plan struct {
	Pools    []PoolPlan     `json:"pools"`
	Problems problem.Report `json:"problems"`
	Missing  []string       `json:"missing"` // what could not be read, and why
}

// PoolPlan is what they would do to one pool.
type PoolPlan struct {
	Name string `json:"name"`
	// From is the rendered MachineConfig that the pool has now, To what it would have. To is empty if the
	// MachineConfigs cannot be merged.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// AtOnce is how many nodes may be unavailable at a time, Rounds how often that many are changed.
	AtOnce int `json:"atOnce"`
	Rounds int `json:"rounds"`
	// Updates are the different ways to To: nodes may be at different MachineConfigs.
	Updates  []NodeUpdate `json:"updates"`
	Nodes    []NodePlan   `json:"nodes"` // in the order in which they would be changed
	Warnings []string     `json:"warnings"`

	merged *authored.MachineConfig
}

// NodeUpdate is the update of the nodes that have one MachineConfig.
type NodeUpdate struct {
	From string `json:"from"`
	update.Update
}

// NodePlan is what happens to one node.
type NodePlan struct {
	Name    string `json:"name"`
	Current string `json:"current,omitempty"`
	Effect  string `json:"effect"` // one of the effects below
	Drain   bool   `json:"drain"`
	Round   int    `json:"round,omitempty"` // from 1; 0 if the node is not changed
}

// What happens to a node.
const (
	EffectNone    = "none"    // it has this MachineConfig already, or nothing in it differs
	EffectLive    = "live"    // it is changed without a reboot
	EffectReboot  = "reboot"  //
	EffectRefused = "refused" // it cannot be changed while it runs
	EffectUnknown = "unknown" // the MachineConfig that it has cannot be read
)

// Planner foresees the effect of MachineConfigs.
type Planner struct {
	Client   *Client
	Renderer authored.Renderer
}

// policyPath is the object with a cluster's own node disruption policy, of OpenShift.
const policyPath = "/apis/operator.openshift.io/v1/machineconfigurations/cluster"

// Proposed are objects that are not in the cluster yet. Those with the name of one that is there replace it.
type Proposed struct {
	MachineConfigs          []*authored.MachineConfig
	ContainerRuntimeConfigs []api.ContainerRuntimeConfig
}

// Plan reads the fleet, and returns what it would do if the proposed objects were applied. Nothing is written.
func (p Planner) Plan(ctx context.Context, f Facts, in Proposed) (Plan, error) {
	proposed := in.MachineConfigs
	out := Plan{Pools: []PoolPlan{}, Problems: ofRenderer(proposed), Missing: append([]string{}, f.Missing...)}
	read, err := list[object](ctx, p.Client, configsPath, "")
	if err != nil {
		if errors.Is(err, errAbsent) {
			return out, fault.New(fault.Refused, "cannot plan: the cluster has no MachineConfigs").WithHint("kubectl apply -k deploy/base")
		}
		return out, err
	}
	existing := map[string]object{}
	for _, d := range read {
		existing[d.name] = d
	}
	policy, report, err := p.policy(ctx)
	if err != nil {
		return out, err
	}
	out.Problems = append(out.Problems, report...)
	all, problems := p.overlaid(read, proposed)
	out.Problems = append(out.Problems, problems...)
	all, problems, err = p.withSettings(ctx, f, overlay{existing, all}, in.ContainerRuntimeConfigs, &out.Missing)
	if err != nil {
		return out, err
	}
	out.Problems = append(out.Problems, problems...)
	if len(f.Pools) == 0 {
		out.Problems.Warn("$", "the cluster has no pools: nothing would be changed")
	}
	for _, of := range f.Pools {
		one, problems, err := p.pool(ctx, planned{facts: f, pool: of, all: all, proposed: proposed, existing: existing, policy: policy})
		if err != nil {
			return out, err
		}
		out.Problems, out.Pools = append(out.Problems, problems...), append(out.Pools, one)
	}
	out.Problems = append(out.Problems, unselected(f.Pools, proposed)...)
	slices.SortFunc(out.Pools, func(a, b PoolPlan) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// overlay is the MachineConfigs of a cluster as they are written, and decoded with the proposed ones in place.
type overlay struct {
	existing map[string]object
	all      []*authored.MachineConfig
}

// object is an object as it is written, with its name and its owner.
type object struct {
	name  string
	owner metav1.OwnerReference // that is its controller; empty: none
	text  []byte
}

// isOf reports whether an object was generated from a ContainerRuntimeConfig.
func (o object) isOf(of *api.ContainerRuntimeConfig) bool {
	return o.owner.UID != "" && o.owner.UID == of.UID
}

// policy returns the cluster's node disruption policy, or the default if it has none or it cannot be read.
func (p Planner) policy(ctx context.Context) (disruption.Cluster, problem.Report, error) {
	data, err := p.Client.read(ctx, policyPath, nil, document.MaxSize)
	switch {
	case err == nil:
		policy, report := disruption.ReadCluster("MachineConfiguration cluster", data)
		return policy, report, nil
	case errors.Is(err, errAbsent):
		return disruption.DefaultCluster(), nil, nil
	case fault.KindOf(err) == fault.Refused:
		var report problem.Report
		report.Warn("$", "the node disruption policy of the cluster is unknown, and the default is assumed: %v", err)
		return disruption.DefaultCluster(), report, nil
	}
	return disruption.Cluster{}, nil, err
}

// overlaid returns the cluster's MachineConfigs, without those of the renderer, with the proposed ones in place of
// those of their names. Of the cluster's own, only what is unusable is reported.
func (p Planner) overlaid(read []object, proposed []*authored.MachineConfig) ([]*authored.MachineConfig, problem.Report) {
	var report problem.Report
	all := slices.Clone(proposed)
	for _, d := range read {
		if api.IsResult(d.name) || slices.ContainsFunc(proposed, func(mc *authored.MachineConfig) bool { return mc.Name == d.name }) {
			continue
		}
		found, problems := authored.Decode(inCluster(d.name), d.text, p.Renderer.Rules)
		all, report = append(all, found...), append(report, problems.Errors()...)
	}
	return all, report
}

func inCluster(name string) string { return "MachineConfig " + name + " of the cluster" }

// ofRenderer refuses names that only a renderer gives.
func ofRenderer(proposed []*authored.MachineConfig) (report problem.Report) {
	for _, mc := range proposed {
		if api.IsResult(mc.Name) {
			p := problem.Errorf("$.metadata.name", "%s is a name that only the renderer gives: pools merge those of authors, and ignore it", problem.Quoted(mc.Name))
			p.File = mc.File()
			report.Add(p)
		}
	}
	return report
}

// unselected warns of proposed MachineConfigs that no pool takes.
func unselected(pools []api.MachineConfigPool, proposed []*authored.MachineConfig) (report problem.Report) {
	for _, mc := range proposed {
		taken := func(p api.MachineConfigPool) bool {
			return api.Selects(p.Spec.MachineConfigSelector, mc.Labels)
		}
		if len(pools) > 0 && !slices.ContainsFunc(pools, taken) {
			p := problem.Warningf("$.metadata.labels", "no pool of the cluster takes the MachineConfig %s", problem.Quoted(mc.Name))
			p.File = mc.File()
			report.Add(p)
		}
	}
	return report
}

// planned is what the plan of one pool depends on.
type planned struct {
	facts         Facts
	pool          api.MachineConfigPool
	all, proposed []*authored.MachineConfig
	existing      map[string]object
	policy        disruption.Cluster
}

// pool plans one pool.
func (p Planner) pool(ctx context.Context, in planned) (PoolPlan, problem.Report, error) {
	out := PoolPlan{Name: in.pool.Name, From: in.pool.Spec.Configuration.Name, Updates: []NodeUpdate{}, Nodes: []NodePlan{}, Warnings: []string{}}
	var chosen []*authored.MachineConfig
	for _, mc := range in.all {
		if api.Selects(in.pool.Spec.MachineConfigSelector, mc.Labels) {
			chosen = append(chosen, mc)
		}
	}
	if len(chosen) == 0 {
		out.Warnings = append(out.Warnings, "no MachineConfig is for this pool: it is left as it is")
		return out, nil, nil
	}
	present, _ := p.decoded(in.existing, out.From)
	merged, report, err := p.withImages(present).MergeChosen(ctx, chosen, in.pool.Name)
	if err != nil || merged == nil {
		return out, report, err
	}
	out.To, out.merged = merged.Name, merged
	if err := p.nodes(&out, in); err != nil {
		return out, report, err
	}
	out.warn(in)
	return out, report, nil
}

// withImages returns a renderer that uses the images of what a pool has now if the MachineConfigs name none: in
// OpenShift they are the release's, which no MachineConfig names.
func (p Planner) withImages(present *authored.MachineConfig) authored.Renderer {
	r := p.Renderer
	if present != nil {
		r.Base.OS = cmp.Or(r.Base.OS, present.Spec.OSImageURL)
		r.Base.Extensions = cmp.Or(r.Base.Extensions, present.Spec.ExtensionsImage)
	}
	return r
}

// decoded returns a MachineConfig of the cluster. It is nil, with the reason, if it cannot be used.
func (p Planner) decoded(existing map[string]object, name string) (*authored.MachineConfig, string) {
	d, there := existing[name]
	if !there {
		return nil, "it is not in the cluster"
	}
	found, report := authored.Decode(inCluster(name), d.text, p.Renderer.Rules)
	if len(found) != 1 {
		return nil, report.String()
	}
	return found[0], ""
}

// nodes compares what each node of the pool has with what it would get.
func (p Planner) nodes(out *PoolPlan, in planned) error {
	effects := map[string]NodePlan{} // by what the node has
	nodes := slices.DeleteFunc(slices.Clone(in.facts.Nodes), func(n Node) bool { return poolOf(n.Metadata.Labels, in.facts.Pools) != out.Name })
	slices.SortFunc(nodes, byTurn)
	out.AtOnce, _ = api.MostUnavailable(in.pool.Name, in.pool.Spec.MaxUnavailable, len(nodes)) // admission refuses a wrong setting
	changed := 0
	for _, n := range nodes {
		current := n.Metadata.Annotations[api.CurrentConfig]
		effect, known := effects[current]
		if !known {
			found, why, err := p.effect(out, in, current)
			if err != nil {
				return err
			}
			if why != "" {
				out.Warnings = append(out.Warnings, fmt.Sprintf("the effect on nodes with %s is unknown: %s", cmp.Or(current, "no MachineConfig"), why))
			}
			effect, effects[current] = found, found
		}
		effect.Name, effect.Current = n.Metadata.Name, current
		if current != out.To && effect.Effect != EffectRefused {
			effect.Round = changed/out.AtOnce + 1
			changed++
		}
		out.Nodes = append(out.Nodes, effect)
	}
	out.Rounds = (changed + out.AtOnce - 1) / out.AtOnce
	return nil
}

// effect returns what the update does to the nodes that have one MachineConfig; why says why that is unknown.
func (p Planner) effect(out *PoolPlan, in planned, current string) (effect NodePlan, why string, err error) {
	if current == out.To {
		return NodePlan{Effect: EffectNone}, "", nil
	}
	if current == "" {
		return NodePlan{Effect: EffectUnknown}, "the node has no annotation " + api.CurrentConfig, nil
	}
	old, why := p.decoded(in.existing, current)
	if old == nil {
		return NodePlan{Effect: EffectUnknown}, why, nil
	}
	u, err := update.Between(old, out.merged, in.policy)
	if err != nil {
		return NodePlan{}, "", fault.New(fault.BadInput, "cannot compare %s with %s: %w", current, out.To, err)
	}
	out.Updates = append(out.Updates, NodeUpdate{From: current, Update: u})
	if arg := threadsOff(out.merged); arg != "" && threadsOff(old) == "" {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s switches off the second threads of all cores: nodes with %s lose up to half of their CPUs, and pods that no longer fit stay Pending", arg, current))
	}
	return effectOf(u), "", nil
}

// threadsOff returns the kernel argument with which machines have one thread a core; "" if there is none.
func threadsOff(mc *authored.MachineConfig) string {
	arg, _ := kargs.Split(strings.Join(mc.Spec.Arguments(), " ")).ThreadsOff()
	return arg
}

func effectOf(u update.Update) NodePlan {
	drains := slices.ContainsFunc(u.Actions, func(a disruption.Action) bool { return a.Type == disruption.Drain })
	switch {
	case u.Refused:
		return NodePlan{Effect: EffectRefused}
	case u.Reboot:
		return NodePlan{Effect: EffectReboot, Drain: drains || len(u.Actions) == 0}
	case len(u.Changes) == 0:
		return NodePlan{Effect: EffectNone}
	}
	return NodePlan{Effect: EffectLive, Drain: drains}
}

// byTurn orders nodes as a rollout takes them.
func byTurn(a, b Node) int { return a.turn().Compare(b.turn()) }

func (n Node) turn() api.Turn {
	return api.Turn{Name: n.Metadata.Name, Labels: n.Metadata.Labels, Created: n.Metadata.CreationTimestamp.Time}
}

// warn adds what else is worth knowing before the change.
func (p *PoolPlan) warn(in planned) {
	say := func(format string, args ...any) { p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...)) }
	if in.pool.Spec.Paused && p.To != p.From {
		say("the pool is paused: no node is begun until spec.paused is false")
	}
	count := map[string]int{}
	for _, n := range p.Nodes {
		count[n.Effect]++
	}
	if n := count[EffectRefused]; n > 0 {
		say("%d nodes refuse the change while they run: they must be installed anew", n)
	}
	if p.To == p.From && len(p.Nodes) != count[EffectNone] {
		say("the pool's configuration stays the same; nodes that differ from it are in a rollout already")
	}
	unavailable := 0
	for _, n := range in.facts.Nodes {
		if poolOf(n.Metadata.Labels, in.facts.Pools) == p.Name && (!n.ready() || n.Spec.Unschedulable) {
			unavailable++
		}
	}
	if unavailable >= p.AtOnce && p.Rounds > 0 {
		say("%d nodes are unavailable already and %d may be: no further node is begun until that changes", unavailable, p.AtOnce)
	}
}

// UnmarshalJSON keeps the text of an object, and reads its name and its owner.
func (o *object) UnmarshalJSON(text []byte) error {
	var named struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	o.name, o.text = named.Metadata.Name, slices.Clone(text)
	if owner := metav1.GetControllerOfNoCopy(&named.Metadata); owner != nil {
		o.owner = *owner
	}
	return nil
}
