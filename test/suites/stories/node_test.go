package stories_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	pivotapi "machine-pivot/internal/api"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/configdaemon"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/nodeagent"
)

// hostRunner runs pivot on a host, in this process, for a node agent. A run ends before Start returns.
type hostRunner struct {
	t    *testing.T
	h    *hostdir.Host
	last hostpivot.Run
}

// as converts a value to the agent's form of its document.
func as[T any](t *testing.T, value any) (out T) {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	must(t, json.Unmarshal(text, &out))
	return out
}

func (o *hostRunner) machine() *machine.Machine {
	m := newMachine(o.t, o.h)
	m.Systemd = &services{}
	return m
}

func (o *hostRunner) apply(r hostpivot.Request) *day2.Apply {
	return &day2.Apply{Machine: o.machine(), Config: day2.Config{File: "machineconfig.json", Data: r.Data}, When: day2.RebootNever, Unsupported: machineconfig.Stop}
}

// Look implements node.Runner.
func (o *hostRunner) Look(ctx context.Context) (host hostpivot.Host, err error) {
	if o.last.Rebooting {
		start(o.t, o.h)
		o.last = hostpivot.Run{}
	}
	status, err := o.machine().Status(ctx)
	if err != nil {
		return host, err
	}
	id, err := o.h.Start()
	return hostpivot.Host{Start: id, Version: "1", Status: as[hostpivot.Status](o.t, status), Run: o.last}, err
}

// Start implements node.Runner.
func (o *hostRunner) Start(ctx context.Context, r hostpivot.Request) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.h.Reboot = func(context.Context) error { cancel(); return nil }
	r.ID = fmt.Sprint(o.last.Request.ID, "+")
	var m *machine.Machine
	switch a := o.apply(r); r.Verb {
	case hostpivot.Download:
		m = a.Machine
		_, err = a.Download(ctx)
	case hostpivot.Apply:
		m = a.Machine
		if r.Reboot {
			a.When = day2.RebootIfNeeded
		}
		_, err = a.Run(ctx, day2.RunOptions{Downloaded: r.Downloaded})
	case hostpivot.HandBack:
		m = o.machine()
		_, err = (&day2.HandBack{Machine: m}).Run(ctx)
	default:
		return errors.New("no such run")
	}
	result := as[hostpivot.Result](o.t, m.Conclude(ctx, err))
	o.last = hostpivot.Run{Request: r, State: hostpivot.RunEnded, Failure: result.Error, Result: &result, Rebooting: result.Outcome == "rebooting"}
	return nil
}

// Tell implements node.Runner.
func (o *hostRunner) Tell(w *pivotapi.Wanted) error { return pivotapi.WriteWanted(o.h.Root, w) }

// Stop implements node.Runner.
func (*hostRunner) Stop(context.Context) error { return errors.New("nothing runs") }

// Watch implements node.Runner.
func (*hostRunner) Watch(context.Context, bool) error { return nil }

// Plan implements node.Runner.
func (o *hostRunner) Plan(ctx context.Context, r hostpivot.Request) (p hostpivot.Plan, err error) {
	plan, err := o.apply(r).Plan(ctx, day2.RunOptions{Downloaded: true})
	if err != nil {
		return p, &hostpivot.Failure{Class: fault.KindOf(err).String(), Message: err.Error()}
	}
	return as[hostpivot.Plan](o.t, plan), nil
}

// Verify implements node.Runner.
func (o *hostRunner) Verify(ctx context.Context) (v hostpivot.Verify, err error) {
	differences, err := o.machine().Verify(ctx)
	return hostpivot.Verify{OK: len(differences) == 0, Differences: as[[]hostpivot.Difference](o.t, append([]pivot.Difference{}, differences...))}, err
}

// configs is a cluster with MachineConfigs.
type configs struct {
	node.Cluster
	all map[string][]byte
}

func (c configs) MachineConfig(_ context.Context, name string) ([]byte, error) {
	if data, there := c.all[name]; there {
		return data, nil
	}
	return nil, node.ErrNoMachineConfig
}

// agentOf returns the agent of a host, for a node with annotations.
func agentOf(t *testing.T, h *hostdir.Host, notes map[string]string, all map[string][]byte) (*nodeagent.World, *node.Agent, *hostRunner) {
	t.Helper()
	w := nodeagent.New()
	w.Change(func(n *node.Node) {
		n.Annotations = map[string]string{}
		maps.Copy(n.Annotations, notes)
	})
	w.Before = func(int, string) { w.Controller() }
	w.Policy.ByController = true
	agent, host := w.Agent(), &hostRunner{t: t, h: h}
	agent.Cluster, agent.Runner = configs{agent.Cluster, all}, host
	return w, agent, host
}

// steps makes steps until the node is Done with a MachineConfig of pivot's own.
func steps(t *testing.T, h *hostdir.Host, w *nodeagent.World, agent *node.Agent, config string) {
	t.Helper()
	for range 60 {
		wait, err := agent.Step(t.Context())
		must(t, err)
		w.Clock = w.Clock.Add(wait)
		if w.State() == api.StateDone && w.Note(api.CurrentConfig) == config && recordedBy(t, h) == machineconfig.RecordedByPivot {
			return
		}
	}
	t.Fatalf("the node does not get %s: %s", config, w)
}

// TestNodeRoundTrip: a node of the machine-config-daemon is taken over by its agent without a change, gets
// another image, kernel arguments and files by pivot, and is given back. Then the daemon finds what it
// expects, on the host and in the annotations, and does nothing.
func TestNodeRoundTrip(t *testing.T) {
	one := clusterConfig("rendered-1", daemonsImage, `"daemon=1"`, daemonsConfig)
	h := ofDaemon(t, one)
	h.Serve(h.NativeImage())
	two := clusterConfig("rendered-2", h.Image, `"two=2"`, strings.NewReplacer("data:,one", "data:,changed", "/opt/data", "/etc/added", "Nice=1", "Nice=2").Replace(daemonsConfig))
	cluster := map[string][]byte{"rendered-1": one, "rendered-2": two}
	notes := annotations("rendered-1")
	w, agent, _ := agentOf(t, h, notes, cluster)
	id := string(h.Read("/proc/sys/kernel/random/boot_id"))

	steps(t, h, w, agent, "rendered-1")
	if !maps.Equal(w.Node.Annotations, notes) || string(h.Read("/proc/sys/kernel/random/boot_id")) != id || slices.Contains(w.Events, api.EventCordon) {
		t.Errorf("it was not taken over as it is: %s", w)
	}
	w.Want("rendered-2")
	steps(t, h, w, agent, "rendered-2")
	if w.Evictions != 1 || h.Version() != "B.2" || w.Node.Unschedulable || verify(t, h) != "" {
		t.Errorf("version %s, drift %s: %s", h.Version(), verify(t, h), w)
	}
	var done *node.Handed
	for range 3 {
		_, handed, err := agent.HandBack(t.Context())
		must(t, err)
		done = handed
	}
	if done == nil || done.Current != "rendered-2" {
		t.Fatalf("%+v: %s", done, w)
	}
	start(t, h)
	after, err := daemonOf(t, h).Start(w.Node.Annotations, cluster)
	if err != nil || !maps.Equal(after, w.Node.Annotations) {
		t.Errorf("the daemon: %v, %v, from %s", after, err, w)
	}
	for name := range w.Node.Annotations {
		if strings.HasPrefix(name, api.Prefix) {
			t.Errorf("the annotation %s is left", name)
		}
	}
}

// TestNodeJoins: after a first boot by pivot, a node joins its cluster with that boot's MachineConfig. Pivot made only
// its image and kernel arguments, and all is proven.
func TestNodeJoins(t *testing.T) {
	h := projecting(t)
	linkVar(t, h)
	config := clusterConfig("rendered-1", h.Image, `"one=1"`, `"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,one"}},{"path":"/opt/data","contents":{"source":"data:,two"}}]}`)
	h.Write("/etc/a", []byte("one")) // as Ignition does
	h.Write("/var/opt/data", []byte("two"))
	var encapsulated map[string]any
	must(t, json.Unmarshal(config, &encapsulated))
	encapsulated["spec"].(map[string]any)["config"] = map[string]any{"ignition": map[string]any{"version": "3.4.0"}}
	text, err := json.Marshal(encapsulated)
	must(t, err)
	h.Write(machineconfig.EncapsulatedPath, text)
	h.Write(configdaemon.NodeAnnotations, []byte(`{"machineconfiguration.openshift.io/currentConfig":"rendered-1"}`))
	must(t, boot(t, h))
	start(t, h)
	must(t, boot(t, h))

	w, agent, _ := agentOf(t, h, nil, map[string][]byte{"rendered-1": config})
	steps(t, h, w, agent, "rendered-1")
	want := map[string]string{api.CurrentConfig: "rendered-1", api.DesiredConfig: "rendered-1", api.StateOfNode: api.StateDone, api.Reason: "", api.PostConfigAction: ""}
	if !maps.Equal(w.Node.Annotations, want) || !slices.Equal(w.States, []string{api.StateDone}) || h.Reboots != 1 {
		t.Errorf("states %q, %d reboots: %s", w.States, h.Reboots, w)
	}
	shell(t, h, "echo changed >etc/a")
	if drift := verify(t, h); drift != "file /etc/a: differs" {
		t.Errorf("drift %q", drift)
	}
}
