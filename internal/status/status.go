// Package status reports what a pivot is doing: to systemd (STATUS= of the unit), in
// /run/pivot/status.json, and as lines for people and the journal. A Timeline draws what it has done: the boots of a
// transaction, pivot's steps in each boot, and the failed tries, on one axis.
package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"machine-pivot/internal/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pid1"
	"machine-pivot/pivot"
)

// Status is the JSON form of "pivot status".
type Status struct {
	// Start identifies the start of the system in which this was true: the boot ID, with +N after the Nth soft
	// reboot, or +entered; "" if it is not known.
	Start   pid1.StartID      `json:"start,omitempty"`
	Phase   pivot.Phase       `json:"phase"`
	Step    pivot.Step        `json:"step"`
	Percent int               `json:"percent"` // of the step; 0 if unknown
	Attempt int               `json:"attempt"`
	Target  pivot.Target      `json:"target"`
	Booted  *pivot.Deployment `json:"booted"`
	Error   *pivot.Failure    `json:"error"` // of the last command, or else of the transaction
	Started time.Time         `json:"started,omitzero"`
	Phases  []pivot.Duration  `json:"phases"`
	Pending *pivot.Deployment `json:"pending"` // the default of the next boot, if it is not the booted deployment
	// HeldBack is a staged deployment that no reboot starts, because it is locked; nil if there is none.
	HeldBack *pivot.Deployment `json:"heldBack,omitempty"`
	History  []pivot.Account   `json:"history"` // finished transactions, oldest first
	// MachineConfig names the machine's MachineConfigs; nil if it has none.
	MachineConfig *MachineConfigs `json:"machineConfig,omitempty"`
	// Features are the parts of the journal that features have. In JSON each is a member with the feature's name.
	Features map[string]pivot.Part `json:"-"`
	Lines    []pivot.Line          `json:"-"` // what they show to people
	// Cluster is what the cluster wants of the machine, as its node agent says; nil if there is none.
	Cluster     *api.Wanted  `json:"cluster,omitempty"`
	LastCommand *LastCommand `json:"lastCommand,omitempty"` // nil if none ran in this boot
	Notes       []string     `json:"notes"`                 // observations on the host, for people
	// Next is what a person has to do so that the machine continues; "" if nothing, or if Error has a hint that says it
	// all.
	Next string `json:"next,omitempty"`
	// Rollback is the deployment that "pivot rollback" would make the next boot; nil if there is none. Only "pivot status"
	// has it, and Next, not the file of a run.
	Rollback *pivot.Deployment `json:"rollback,omitempty"`
	LeftOut  []string          `json:"leftOut,omitempty"` // parts of the MachineConfig that were not applied
	// Partitioning is the machine's CPU partitioning. Only "pivot status" has it, not the file of a run.
	Partitioning *Partitioning `json:"partitioning,omitempty"`
}

// Partitioning is what a machine's pinning file for kubelet says. Without a file there are no workloads, and no
// problem.
type Partitioning struct {
	Workloads []string `json:"workloads"` // types, in alphabetical order
	// Problem is why the file cannot be used, with what to do; "" if it can be.
	Problem string `json:"problem,omitempty"`
}

// LastCommand is the last command that could change the machine. Its result is not the machine's
// phase: a command that failed before it had changed anything leaves the machine as it was.
type LastCommand struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	// Error is why it failed, or why its last try did; nil if it did not.
	Error *pivot.Failure `json:"error,omitempty"`
}

// Result is how a command ended.
type Result string

// The results.
const (
	ResultRunning   Result = "running" // or it was killed
	ResultSucceeded Result = "succeeded"
	ResultFailed    Result = "failed"
	// ResultInterrupted is the result of a command that a signal has ended before its commit.
	ResultInterrupted Result = "interrupted"
)

// commandOf returns the command of an event; nil if it is not known.
func commandOf(e pivot.Event) *LastCommand {
	if e.Command == "" {
		return nil
	}
	c := LastCommand{Name: e.Command, Result: ResultRunning}
	if e.Err != nil {
		c.Error = pivot.FailureOf(e.Err)
	}
	_, stopped := errors.AsType[fault.Stopped](e.Err)
	switch {
	case e.Kind == pivot.EventFailing && stopped:
		c.Result = ResultInterrupted
	case e.Kind == pivot.EventFailing, e.Kind == pivot.EventEnded && e.Err != nil:
		c.Result = ResultFailed
	case e.Kind == pivot.EventEnded:
		c.Result = ResultSucceeded
	}
	return &c
}

// Failed reports whether the last command has failed, or was interrupted.
func (s Status) Failed() bool {
	return s.LastCommand != nil && (s.LastCommand.Result == ResultFailed || s.LastCommand.Result == ResultInterrupted)
}

// MachineConfigs are the MachineConfigs that a machine has and should have.
type MachineConfigs struct {
	Current *pivot.MachineConfig `json:"current"` // of the running system; nil if there is none
	// RecordedBy is the program that says so, a machineconfig.Recorder; "" if there is none.
	RecordedBy string               `json:"recordedBy,omitempty"`
	Desired    *pivot.MachineConfig `json:"desired"`
}

// Of returns the status after an event.
func Of(e pivot.Event) Status {
	s := Status{
		Start: e.Start, Phase: e.Journal.Phase, Step: e.Step, Attempt: e.Journal.Attempt, Target: e.Journal.Target,
		Error: e.Journal.Error, Started: e.Journal.Started, Phases: e.Journal.Phases, History: e.Journal.History,
	}
	if s.LastCommand = commandOf(e); e.Kind == pivot.EventFailing {
		s.Error = pivot.FailureOf(e.Err)
	}
	s.Percent = e.Amount.Percent()
	if s.Phases == nil {
		s.Phases = []pivot.Duration{}
	}
	if s.History == nil {
		s.History = []pivot.Account{}
	}
	s.Notes = []string{}
	return s
}

// MarshalJSON implements json.Marshaler.
func (s Status) MarshalJSON() ([]byte, error) {
	type plain Status
	data, err := json.Marshal(plain(s))
	for _, name := range slices.Sorted(maps.Keys(s.Features)) { // features of this program: see machine.Machine.Status
		data = fmt.Appendf(data[:len(data)-1], ",%q:%s}", name, s.Features[name].Data)
	}
	return data, err
}

// path is the status file, relative to the root directory.
const path = "run/pivot/status.json"

// Write replaces the status file.
func (s Status) Write(root string) error {
	data, err := api.MarshalIndent(api.Status, s)
	if err != nil {
		return fmt.Errorf("cannot write status: %w", err)
	}
	return replace(filepath.Join(root, path), data)
}

// replace replaces a file that everybody may read, and makes its directory if there is none.
func replace(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("cannot write %s: %w", file, err)
	}
	return hostfiles.Replace(hostfiles.OS{}, file, data, 0o644)
}

// Read returns the status of the last run in the given start of the system. If there was none, it
// returns the status of an earlier one from the journal. A boot has an empty /run, a soft reboot keeps it.
// Each status has a phase: a file without one is not pivot's, and is as unusable as a damaged one.
func Read(root string, now pid1.StartID) (Status, error) {
	var s Status
	file := hostfiles.StateFile{Root: root, Path: "/" + path, Name: "status /" + path, Remedy: "remove the file: the journal says the rest, and the next command writes it again"}
	err := file.Decode(&s)
	if err == nil && s.Phase == "" {
		err = file.Unusable(errors.New("it names no phase"))
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && s.Start != "" && now != "" && s.Start != now {
		journal, err := pivot.JournalIn(root).Load()
		return Of(pivot.Event{Journal: journal}), err
	}
	return s, err
}
