package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	pivotapi "machine-pivot/internal/api"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
)

// said is what was published last.
type said struct {
	system, update published
	host           string // key of what the host was told
	atRest         bool   // the agent, by the NodeSystem
}

// published is what was written last of an object. It saves requests, and does not say that the object still exists:
// somebody may have deleted it. So it holds for a time only.
type published struct {
	key   string
	until time.Time
}

// publishAgain is after what time an object is written again that has not changed. Each time is a random one from its
// half to its whole, so that agents that were started together do not write together. A write that changes nothing
// makes no new version of the object.
const publishAgain = time.Hour

// wrote returns what is remembered of an object that was written at a time.
func wrote(key string, now time.Time) published {
	return published{key, now.Add(publishAgain - rand.N(publishAgain/2))}
}

func (p published) holds(key string, now time.Time) bool { return p.key == key && now.Before(p.until) }

// publish writes the objects with the state of the node: each if a stage, a fifth of the progress or what differs has
// changed, or if it is old. A failure is only logged, and tried again in the next step: the node's own work does not
// depend on these objects, but people, and the fleet's controller, do.
func (a *Agent) publish(ctx context.Context, s situation, action Action) {
	a.Metrics.observed(s, a.change)
	if !s.Managed {
		return
	}
	progressed, system := a.progressed(s, action), a.system(s, action)
	if key := keyOf([]any{progressed, s.node.Annotations[api.CurrentConfig]}); !a.said.update.holds(key, a.Now()) {
		if a.published(a.Cluster.PublishUpdate(ctx, s.node, progressed)) {
			a.said.update = wrote(key, a.Now())
		}
	}
	// A node at rest is compared again and again, which is not worth a request each time.
	atRest := action == ActionRest || action == ActionProve && a.said.atRest
	if atRest {
		system.Step = string(ActionRest)
	}
	if key := keyOf(essence(system)); !a.said.system.holds(key, a.Now()) {
		if a.published(a.Cluster.PublishSystem(ctx, s.node, system)) {
			a.said.system, a.said.atRest = wrote(key, a.Now()), atRest
		}
	}
}

// published reports whether an object was written, and logs if not.
func (a *Agent) published(err error) bool {
	if err != nil {
		a.Log.WithError(err).Warn("cannot publish the state of the node")
	}
	return err == nil
}

// essence returns a status without what changes too often to be published each time. Of the step remains whether the
// agent is at rest, so that the last thing it has done does not stay there as what it does.
func essence(s api.NodeSystemStatus) api.NodeSystemStatus {
	if s.Step != string(ActionRest) {
		s.Step = ""
	}
	if s.Progress != nil {
		s.Progress = &api.Progress{Step: s.Progress.Step, Percent: s.Progress.Percent / 20}
	}
	return s
}

// tell tells the host what the cluster wants, if that has changed.
func (a *Agent) tell(s situation, action Action) {
	var w *pivotapi.Wanted
	if s.Managed {
		note := s.node.Annotations
		w = &pivotapi.Wanted{Node: s.node.Name, Config: a.change.config, State: note[api.StateOfNode], Reason: note[api.Reason], Step: string(action)}
	}
	key := keyOf(w)
	if key == a.said.host {
		return
	}
	if w != nil {
		w.Since = a.Now().UTC().Truncate(time.Second)
	}
	if err := a.Runner.Tell(w); err != nil {
		a.Log.WithError(err).Warn("cannot tell the host which MachineConfig the cluster wants")
		return
	}
	a.said.host = key
}

// keyOf returns a text that is the same for equal values.
func keyOf(value any) string {
	key, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(key)
}

// progressed returns what the update is at.
func (a *Agent) progressed(s situation, action Action) api.Progressed {
	p := api.Progressed{Stage: stageOf(s, action), Emptied: s.Ours || s.Drain != DrainNone, Config: a.change.config}
	f, note := a.change.failure, s.node.Annotations
	switch {
	case p.Stage == api.StageDrain: // what it waits for is no failure of the change
		if p.Waiting = note[api.Reason]; note[api.StateOfNode] == api.StateDegraded {
			p.Degraded = p.Waiting
		}
	case f.degrades():
		p.Degraded, p.Invalid, p.Replace = f.reason, f.state == api.StateUnreconcilable, note[api.NeedsReplacement] == a.change.config
	case f != nil && p.Stage == api.StagePrepare: // also while it is tried again
		p.Waiting = f.reason
	}
	return p
}

// stageOf returns the stage of the update that an action belongs to.
func stageOf(s situation, action Action) api.Stage {
	switch action {
	case ActionCordon, ActionDrain:
		return api.StageDrain
	case ActionAnnounce, ActionApply:
		return api.StageApply
	case ActionWait:
		if s.host.Run.Request.Verb == hostpivot.Apply && s.Run == RunRunning {
			return api.StageApply
		}
	case ActionUncordon, ActionDone:
		if s.System == SystemTarget {
			return api.StageResume
		}
	}
	switch {
	case s.System != SystemTarget && s.System != SystemTrial:
		return api.StagePrepare
	case s.node.Annotations[api.CurrentConfig] == s.node.Annotations[api.DesiredConfig]:
		return api.StageNone // it is compared once more, or has drifted
	}
	return api.StageReboot
}

// system returns the status of the node's NodeSystem.
func (a *Agent) system(s situation, action Action) api.NodeSystemStatus {
	m, host := a.change, s.host
	out := api.NodeSystemStatus{
		Config: api.ConfigNames{Current: host.Status.Current(), Desired: m.config}, Step: string(action),
		KernelArguments: api.KernelArguments{Missing: []string{}, Excess: []string{}},
		BootID:          host.Start.Boot(), AgentVersion: a.Version, PivotVersion: host.Version,
	}
	if b := host.Status.Booted; b != nil {
		out.Booted = &api.System{Image: b.Image.String(), Commit: b.Commit}
	}
	if p := host.Status.Pending; p != nil {
		out.Pending = &api.System{Image: p.Image.String(), Commit: p.Commit}
	}
	if s.Run == RunRunning && !host.Run.Request.Early { // of which there is only the result
		out.Progress = &api.Progress{Step: host.Status.Step, Percent: host.Status.Percent, BytesPulled: host.Status.PulledBytes()}
	}
	if m.failure != nil {
		out.Failure = m.failure.reason
	}
	out.Download = a.download(host.Status)
	if host.Run.Result != nil && host.Run.Request.Config == m.config {
		out.LeftOut = listed(host.Run.Result.LeftOut)
	}
	if m.compared {
		out.Proof = proofOf(m, &out.KernelArguments)
	}
	return out
}

// mostListed is how many entries of a list a NodeSystem names. With more of the longest ones, it could not be written:
// the limits are those of its schema and of etcd.
const mostListed = 100

// listed returns the first of many texts, and how many more there are.
func listed(texts []string) (out []string) {
	for _, text := range texts[:min(len(texts), mostListed)] {
		out = append(out, api.BoundedReason(text))
	}
	if more := len(texts) - mostListed; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// proofOf returns the result of the last comparison, and adds the first kernel arguments that differ.
func proofOf(m memory, kargs *api.KernelArguments) *api.Proof {
	const most = 20
	p := &api.Proof{OK: m.verify.OK, Number: len(m.verify.Differences)}
	for i, d := range m.verify.Differences {
		if i < most {
			p.Differences = append(p.Differences, api.BoundedReason(d.Message))
		}
		if d.Class != "arguments" {
			continue
		}
		list := &kargs.Excess
		if d.Wrong == "missing" {
			list = &kargs.Missing
		}
		if len(*list) < mostListed {
			*list = append(*list, api.BoundedReason(cmp.Or(d.Name, d.Message)))
		}
	}
	return p
}
