package node

import (
	"fmt"
	"io"
	"sync"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/verdict"
)

// Metrics are the agent's metrics in the text format of Prometheus. Their labels have values of fixed
// sets only.
type Metrics struct {
	Version, Commit string // of this program

	mu       sync.Mutex
	state    string // annotation of the node
	failing  bool
	drift    bool
	cordoned bool
	cannot   api.Cannot
	provenAt time.Time
	failures int
	// Steps that failed because the API server or systemd did not answer.
	unreachable int
	// unknownWorkloads says that the host's file of workload types cannot be used.
	unknownWorkloads bool

	alive time.Time // until when the agent is thought to be alive
	ready bool
}

// observed takes note of a step, and of what is known of the desired MachineConfig.
func (m *Metrics) observed(s situation, of memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.failing, m.cordoned = s.node.Annotations[api.StateOfNode], of.failure.degrades(), s.Ours
	m.cannot = api.CannotOf(s.node.Annotations[api.CannotStart])
	m.drift = s.System == SystemTarget && of.differs() || of.failure != nil && of.failure.stray
}

// proven takes note of a comparison without differences.
func (m *Metrics) proven(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.provenAt = at
}

// workloads takes note of whether the workload types of the host are known.
func (m *Metrics) workloads(known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unknownWorkloads = !known
}

// failed counts a failure that was reported.
func (m *Metrics) failed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures++
}

// stepLimit is how long a step may take: a drain some minutes, a comparison of the system a quarter of an
// hour.
const stepLimit = 30 * time.Minute

// stepping takes note that a step begins.
func (m *Metrics) stepping(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alive = now.Add(stepLimit)
}

// stepped takes note of a step that has ended, and of the wait after it.
func (m *Metrics) stepped(now time.Time, wait time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alive, m.ready = now.Add(wait+stepLimit), err == nil
	if err != nil {
		m.unreachable++
	}
}

// Alive reports whether the agent makes steps.
func (m *Metrics) Alive(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Before(m.alive)
}

// Ready reports whether its last step has reached the API server and the host.
func (m *Metrics) Ready(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ready && now.Before(m.alive)
}

// Write writes the metrics.
func (m *Metrics) Write(w io.Writer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := exposition{w: w}
	e.family("pivot_build_info", "gauge", "1, with the version of the program.")
	e.sample(fmt.Sprintf("pivot_build_info{program=\"pivot-agent\",version=%q,commit=%q}", m.Version, m.Commit), 1)
	e.family("pivot_agent_node_state", "gauge", "The state that the node's annotation has: 1 for one of them.")
	for _, state := range []string{api.StateDone, api.StateWorking, api.StateDegraded, api.StateUnreconcilable} {
		e.sample(fmt.Sprintf("pivot_agent_node_state{state=%q}", state), number(m.state == state))
	}
	e.single("pivot_agent_failing", "gauge", "Whether a change, or the proof of the running system, has failed.", number(m.failing))
	e.single("pivot_agent_config_drift", "gauge", "Whether the running system differs from the MachineConfig that the node has.", number(m.drift))
	e.single("pivot_agent_cordoned", "gauge", "Whether the node is cordoned because of the agent.", number(m.cordoned))
	e.family("pivot_agent_cannot_start", "gauge", "Whether a verdict says that this machine cannot start the image of a MachineConfig.")
	for _, name := range verdict.Names() {
		e.sample(fmt.Sprintf("pivot_agent_cannot_start{verdict=%q}", name), number(m.cannot.Has(string(name))))
	}
	e.single("pivot_agent_failures_total", "counter", "Failures that were reported.", float64(m.failures))
	e.single("pivot_agent_unreachable_total", "counter", "Steps that failed because the API server or systemd did not answer.", float64(m.unreachable))
	e.single("pivot_agent_workloads_unknown", "gauge", "Whether the host's file of workload types cannot be used.", number(m.unknownWorkloads))
	if !m.provenAt.IsZero() {
		e.single("pivot_agent_last_proof_timestamp_seconds", "gauge", "When the running system was last found equal to its MachineConfig.", float64(m.provenAt.Unix()))
	}
	return e.err
}

// exposition writes the text format, until an error.
type exposition struct {
	w   io.Writer
	err error
}

func (e *exposition) family(name, kind, help string) {
	e.line("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e *exposition) sample(name string, value float64) { e.line("%s %v\n", name, value) }

func (e *exposition) single(name, kind, help string, value float64) {
	e.family(name, kind, help)
	e.sample(name, value)
}

func (e *exposition) line(format string, args ...any) {
	if e.err == nil {
		_, e.err = fmt.Fprintf(e.w, format, args...)
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
