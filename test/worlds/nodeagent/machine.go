package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pivotapi "machine-pivot/internal/api"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/pid1"
)

// Machine is a machine with pivot on it, as far as the agent sees it.
type Machine struct {
	Current, Pending string // names of MachineConfigs
	Desired, Phase   string // of pivot's journal
	Downloaded       string // digest
	Boots            int    // reboots so far
	NoOstree         bool
	Told             *pivotapi.Wanted
	RunTicks         int    // how long a run takes, in waits of the agent
	Silent           bool   // pivot does not answer
	Stuck            bool   // no reboot that is asked for ends
	RecordedBy       string // who says what Current is; "" if nobody does
	Lacks            bool   // what runs is not all that Current asks for
	Verified         int    // comparisons by the agent
	Asked            int    // for pivot status
	Drifted          bool   // somebody has changed what runs, by hand
	Watching         bool   // it is compared whenever that changes

	watched *hostpivot.Watched // by that

	Trials int // systems that were booted on trial

	old   string // the MachineConfig of the system that a trial would return to; "": no trial
	run   hostpivot.Run
	ticks int // that the run still takes
	runs  int
}

// Running reports whether a run of pivot, or the reboot that it has asked for, continues.
func (m *Machine) Running() bool { return m.run.State == hostpivot.RunRunning || m.reboots() }

// reboots reports whether the machine is about to reboot.
func (m *Machine) reboots() bool { return m.run.Rebooting && !m.Stuck }

// Run starts a run of pivot, as an agent does.
func (m *Machine) Run(r hostpivot.Request) {
	m.run, m.ticks = hostpivot.Run{Request: r, State: hostpivot.RunRunning}, 3
}

// machineRunner is the world's machine as the node.Runner of one agent.
type machineRunner struct {
	w      *World
	answer *hostpivot.Answer
}

// Look implements node.Runner.
func (h machineRunner) Look(context.Context) (host hostpivot.Host, err error) {
	err = h.w.call("look", func() error {
		m := &h.w.Machine
		if m.NoOstree {
			return hostpivot.ErrNotOstree
		}
		if m.Silent {
			return errors.New("no such program")
		}
		if m.reboots() {
			h.w.reboot()
			h.w.dead = true
			return errKilled
		}
		host, err = h.host()
		return err
	})
	return host, err
}

// host returns what hostpivot.Systemd would find: while a run continues, its file has its progress, and nothing of the
// machine.
func (h machineRunner) host() (host hostpivot.Host, err error) {
	m := &h.w.Machine
	host = hostpivot.Host{Start: pid1.StartID(fmt.Sprint(m.Boots)), Version: "1", Run: m.run, Watched: m.watched}
	var run func() (hostpivot.Status, error)
	if m.run.State == hostpivot.RunRunning {
		run = func() (hostpivot.Status, error) {
			return hostpivot.Status{Phase: "applying", Step: "pull", Percent: 100 - 100*m.ticks/max(m.RunTicks, m.ticks, 1)}, nil
		}
	}
	host.Status, err = h.answer.Status(host.Start, run, func() (hostpivot.Status, error) {
		m.Asked++
		return m.status(), nil
	})
	return host, err
}

// status is the machine's answer to pivot status.
func (m *Machine) status() hostpivot.Status {
	s := hostpivot.Status{Phase: m.Phase, Booted: &hostpivot.Deployment{Commit: m.Current}, MachineConfig: &hostpivot.NamedConfigs{RecordedBy: m.RecordedBy, Desired: &hostpivot.Named{Name: m.Desired}}}
	if m.RecordedBy != "" {
		s.MachineConfig.Current = &hostpivot.Named{Name: m.Current}
	}
	if m.Pending != "" {
		s.Pending = &hostpivot.Deployment{Commit: m.Pending}
	}
	if m.Downloaded != "" {
		s.Downloaded = &hostpivot.Downloaded{MachineConfig: m.Downloaded, At: "2026-01-01T00:00:00Z"}
	}
	return s
}

// Start implements node.Runner.
func (h machineRunner) Start(_ context.Context, r hostpivot.Request) error {
	return h.w.call("start "+string(r.Verb), func() error {
		m := &h.w.Machine
		if m.Running() {
			h.w.Violated("a run beside another")
			return errors.New("a run is running")
		}
		m.runs++
		r.ID = fmt.Sprintf("%d-%d", m.Boots, m.runs)
		m.run, m.ticks = hostpivot.Run{Request: r, State: hostpivot.RunRunning}, m.RunTicks
		return nil
	})
}

// Tell implements node.Runner.
func (h machineRunner) Tell(w *pivotapi.Wanted) error {
	return h.w.call("tell", func() error {
		h.w.Machine.Told = w
		return nil
	})
}

// Stop implements node.Runner.
func (h machineRunner) Stop(context.Context) error {
	return h.w.call("stop", func() error {
		h.w.Machine.run = hostpivot.Run{Request: h.w.Machine.run.Request, State: hostpivot.RunEnded, Failure: &hostpivot.Failure{Class: "interrupted", Message: "stopped"}}
		return nil
	})
}

// Plan implements node.Runner.
func (h machineRunner) Plan(_ context.Context, r hostpivot.Request) (p hostpivot.Plan, err error) {
	err = h.w.call("plan", func() error {
		if h.w.Machine.Downloaded != r.Digest {
			h.w.Violated("a plan of what is not downloaded")
		}
		c := h.w.needs(r.Config)
		p.Changed, p.Drain.Wanted = true, c.Drain
		if c.Reboot {
			p.Reboots, p.Needs = 1, []hostpivot.Need{{Change: "image", Because: "it is another one", Actions: []struct {
				Type string `json:"type"`
			}{{"Reboot"}}}}
		}
		return nil
	})
	return p, err
}

// needs returns a MachineConfig with what it needs on the machine as it is.
func (w *World) needs(config string) Config {
	c, m := w.Configs[config], w.Machine
	switch {
	case config == m.Current && m.Lacks:
		c.Reboot, c.Drain = true, true
	case config == m.Current:
		c.Reboot, c.Drain = false, false
	}
	return c
}

// Verify implements node.Runner.
func (h machineRunner) Verify(context.Context) (v hostpivot.Verify, err error) {
	err = h.w.call("verify", func() error {
		if h.w.Machine.RecordedBy != "pivot" {
			h.w.Violated("a proof of what pivot was never asked for")
		}
		h.w.Machine.Verified++
		v = h.w.compare()
		return nil
	})
	return v, err
}

// compare compares what runs with its MachineConfig.
func (w *World) compare() hostpivot.Verify {
	v := hostpivot.Verify{OK: true}
	if w.Configs[w.Machine.Current].Differs {
		v.Differences = append(v.Differences, hostpivot.Difference{Class: "arguments", Name: "quiet", Wrong: "missing", Message: "kernel argument quiet is missing"})
	}
	for i := range w.Configs[w.Machine.Current].Arguments {
		name := fmt.Sprintf("a%d=%s", i, strings.Repeat("x", 3000))
		v.Differences = append(v.Differences, hostpivot.Difference{Class: "arguments", Name: name, Wrong: "missing", Message: "kernel argument " + name + " is missing"})
	}
	if w.Machine.Drifted {
		v.Differences = append(v.Differences, hostpivot.Difference{Class: "file", Name: "/etc/a", Wrong: "differs", Message: "file /etc/a: differs"})
	}
	v.OK = len(v.Differences) == 0
	return v
}

// Watch implements node.Runner.
func (h machineRunner) Watch(_ context.Context, on bool) error {
	return h.w.call("watch", func() error {
		if h.w.Machine.Watching = on; !on {
			h.w.Machine.watched = nil
		}
		return nil
	})
}

// watch compares what runs if it is watched, and reports whether something else is found than before.
func (w *World) watch() bool {
	m, found := &w.Machine, w.compare()
	if !m.Watching || m.watched != nil && m.watched.OK == found.OK && len(m.watched.Differences) == len(found.Differences) {
		return false
	}
	m.watched = &hostpivot.Watched{Verify: found, At: w.Clock}
	return true
}

// Pass lets time pass on the machine.
func (w *World) Pass() {
	m := &w.Machine
	switch {
	case m.reboots():
		w.reboot()
		w.dead = true // the agent stops with its machine
	case m.run.State == hostpivot.RunRunning:
		if m.ticks--; m.ticks <= 0 {
			w.endRun()
		}
	case m.Phase == "trial":
		if m.ticks--; m.ticks <= 0 {
			w.endTrial()
		}
	}
}

// endRun does what the run was for.
func (w *World) endRun() {
	m := &w.Machine
	m.run.State, m.run.Failure = hostpivot.RunEnded, w.carryOut(m.run.Request)
	m.run.Result, m.run.Ended = &hostpivot.Result{}, w.Clock
	for i := range w.Configs[m.run.Request.Config].LeftOut {
		m.run.Result.LeftOut = append(m.run.Result.LeftOut, fmt.Sprintf("part %d %s", i, strings.Repeat("x", 3000)))
	}
	m.run.Rebooting = m.run.Failure == nil && m.run.Request.Verb == hostpivot.Apply && m.Pending != ""
}

func (w *World) carryOut(r hostpivot.Request) *hostpivot.Failure {
	m, name := &w.Machine, r.Config
	c := w.needs(name)
	switch {
	case r.Verb == hostpivot.Revert:
		m.Pending, m.Phase = "", "done"
	case r.Verb == hostpivot.HandBack && (m.RecordedBy != "pivot" || m.Lacks):
		return &hostpivot.Failure{Class: "refused", Message: "cannot give this machine back", Hint: "pivot apply --repair", Permanent: true}
	case r.Verb == hostpivot.HandBack:
		m.RecordedBy, m.Desired = "machine-config-daemon", m.Current
	case c.Invalid:
		return &hostpivot.Failure{Class: "input", Message: "the MachineConfig is invalid", Permanent: true}
	case c.Installs && r.Unsupported == node.UnsupportedReplace:
		return &hostpivot.Failure{Class: "replace", Message: "this machine cannot get other disks", Permanent: true}
	case c.Installs:
		return &hostpivot.Failure{Class: "unreconcilable", Message: "this machine cannot get other disks", Permanent: true}
	case r.Verb == hostpivot.Download && len(c.CannotStart) > 0:
		return &hostpivot.Failure{Class: "refused", Message: "cannot start the image on this machine: it needs x86-64-v3", Hint: "another image", Permanent: true, Verdicts: c.CannotStart}
	case r.Verb == hostpivot.Download && c.Unavailable > 0:
		c = w.Configs[name]
		c.Unavailable--
		w.Configs[name] = c
		return &hostpivot.Failure{Class: "unavailable", Message: "the registry does not answer"}
	case r.Verb == hostpivot.Download:
		m.Downloaded = r.Digest
	case c.ApplyFails:
		return &hostpivot.Failure{Class: "refused", Message: "no space in /boot", Permanent: true}
	case c.Reboot && !r.Reboot:
		return &hostpivot.Failure{Class: "refused", Message: "it needs a reboot", Permanent: true}
	case c.Reboot:
		if r.Try > 0 {
			m.old = m.Current
		}
		m.Pending, m.Desired, m.Phase, m.Downloaded = name, name, "committed", ""
	default:
		if c.Drain && w.Pods > 0 {
			w.Violated("%s was applied on a node with pods", name)
		}
		m.Current, m.Desired, m.Phase, m.Downloaded, m.RecordedBy = name, name, "done", "", "pivot"
	}
	return nil
}

// reboot boots the machine's next system, by request or by the power.
func (w *World) reboot() {
	m := &w.Machine
	if m.run.Rebooting && w.Pods > 0 && !w.Policy.SingleNode {
		w.Violated("a reboot for %s of a node with pods", m.Pending)
	}
	if m.run.Rebooting && w.Note(api.PostConfigAction) != api.ActionReboot {
		w.Violated("a reboot that was not announced")
	}
	m.Boots++
	m.run, m.ticks, m.Watching, m.watched = hostpivot.Run{}, 0, false, nil
	switch {
	case m.Pending == "":
		if m.Phase == "trial" { // the boot loader boots a system on trial only once
			m.Current, m.Phase, m.old = m.old, "failed", ""
		}
	case w.Configs[m.Pending].Lost > 0:
		c := w.Configs[m.Pending]
		c.Lost--
		w.Configs[m.Pending] = c
		m.Phase = "undone"
	case w.Configs[m.Pending].FallsBack:
		m.Phase = "undone" // as pivot status says it in a boot without what was committed
		if m.old != "" {
			m.Phase, m.old = "failed", ""
		}
	case m.old != "":
		m.Current, m.Phase, m.ticks, m.RecordedBy, m.Lacks = m.Pending, "trial", 3, "pivot", false
		m.Trials++
	default:
		m.Current, m.Phase, m.RecordedBy, m.Lacks = m.Pending, "done", "pivot", false
	}
	m.Pending = ""
}

// endTrial ends the trial of the running system by its own proof, as pivot does.
func (w *World) endTrial() {
	m := &w.Machine
	if !w.Configs[m.Current].Differs {
		m.Phase, m.old = "done", ""
		return
	}
	w.reboot()
	w.dead = true
}

// PowerCut cuts the machine's power, and that of the agent on it.
func (w *World) PowerCut() {
	w.reboot()
	w.dead = true
}
