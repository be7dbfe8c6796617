package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// machine is a simulated node: what its agent and its system do, in the order of the real ones.
type machine struct {
	name    string
	rand    *rand.Rand
	m       *memory
	faults  bool // it may fail, hang, vanish and lie
	running string
	at      stage
	config  string // that is applied
	until   time.Time
	boots   int
	outage  bool // it is not Ready for a reason of its own
	gone    bool // it does not come back before the end of the faults
	lie     string
	early   string          // that it downloads before its turn
	silent  bool            // it never says what became of that
	failed  map[string]bool // configurations that do not work on it
}

type stage int

const (
	idle stage = iota
	preparing
	draining
	rebooting
	lying
)

// The lies of a machine that says it is done.
const (
	lieEarly    = "before its reboot"
	lieCurrent  = "with another configuration"
	lieArgument = "without an argument"
)

// disturbed reports whether the machine is, or will be, unavailable because of a configuration it was given.
func (c *machine) disturbed() bool {
	n := c.m.nodes[c.name]
	return n != nil && (c.at != idle || n.Annotations[api.DesiredConfig] != c.running || n.Annotations[api.CordonedFor] != "")
}

func (c *machine) write(change func(n *rollout.Node)) { c.m.change(c.name, change) }

func (c *machine) note(state, reason string) {
	c.write(func(n *rollout.Node) { n.Annotations[api.StateOfNode], n.Annotations[api.Reason] = state, reason })
}

func (c *machine) wait(s stage, minutes int) {
	c.at, c.until = s, c.m.now.Add(time.Duration(1+c.rand.IntN(minutes))*time.Minute)
}

func (c *machine) chance(percent int) bool { return c.faults && c.rand.IntN(100) < percent }

// step does what is due.
func (c *machine) step() {
	n := c.m.nodes[c.name]
	if n == nil {
		return
	}
	desired := n.Annotations[api.DesiredConfig]
	switch {
	case c.outage:
		if !c.chance(80) {
			c.outage = false
			c.write(func(n *rollout.Node) { n.Problem, n.NotReadySince = "", time.Time{} })
		}
		return
	case c.at == rebooting && (c.m.now.Before(c.until) || c.gone && c.faults):
		return
	case c.at == rebooting:
		c.boot(desired)
		return
	case c.chance(1):
		c.outage = true
		c.down()
		return
	}
	if c.at != lying && c.config != desired && c.at != idle { // it begins again with the new one
		c.at = idle
	}
	switch {
	case c.at == idle && desired != c.running && n.Annotations[api.FailedConfig] != desired:
		c.config = desired
		c.note(api.StateWorking, "")
		c.wait(preparing, 10)
	case c.at == idle && desired == c.running && (n.Annotations[api.StateOfNode] != api.StateDone || n.Annotations[api.CurrentConfig] != c.running || n.Annotations[api.CordonedFor] != ""):
		c.settle()
	case c.at == idle:
		c.prefetch(n)
	case c.m.now.Before(c.until):
	case c.at == preparing && (c.failed[c.config] || c.chance(5)):
		c.fail(c.config, "cannot pull")
	case c.at == preparing:
		c.write(func(n *rollout.Node) { n.Cordoned, n.Annotations[api.CordonedFor] = true, c.config })
		c.wait(draining, 10)
	case c.at == draining && c.chance(5):
		c.lie = lieEarly
		c.at = lying
		c.done(c.config)
		c.wait(lying, 60)
	case c.at == draining:
		c.down()
		c.gone = c.chance(10)
		c.wait(rebooting, 8)
	case c.at == lying:
		c.tellTruth()
	}
}

// prefetch downloads what the machine is asked for.
func (c *machine) prefetch(n *rollout.Node) {
	says := n.System.Download
	switch asked := n.Annotations[api.Download]; {
	case asked == "" || asked == c.running:
		c.early = ""
	case asked != c.early:
		c.early, c.until, c.silent = asked, c.m.now.Add(time.Duration(1+c.rand.IntN(20))*time.Minute), c.chance(5)
		c.report(nil)
	case c.m.now.Before(c.until), c.silent && c.faults, says != nil && says.Config == asked:
	case c.chance(10):
		c.report(&api.EarlyDownload{Config: asked, Failure: "cannot pull", FailedAt: c.m.now})
	default:
		c.report(&api.EarlyDownload{Config: asked})
	}
}

// report says how far a download is.
func (c *machine) report(d *api.EarlyDownload) {
	c.write(func(n *rollout.Node) {
		s := *n.System
		s.Download = d
		n.System = &s
	})
}

// down makes the machine not Ready.
func (c *machine) down() {
	c.write(func(n *rollout.Node) { n.Problem, n.NotReadySince = "is not Ready", c.m.now })
}

// boot brings the machine up, with the new system or, if that fails, with the old one.
func (c *machine) boot(desired string) {
	c.boots++
	c.gone = false
	c.write(func(n *rollout.Node) {
		n.Problem, n.NotReadySince, n.BootID = "", time.Time{}, fmt.Sprintf("%s-%d", c.name, c.boots)
	})
	switch {
	case c.failed[c.config] || c.chance(5):
		c.fail(c.config, "the machine has booted its old system again")
	case desired != c.config:
		c.running, c.at = c.config, idle
		c.write(func(n *rollout.Node) { n.System = &rollout.System{Current: c.running, BootID: n.BootID} })
	case c.chance(5):
		c.running, c.lie = c.config, lieCurrent
		c.write(func(n *rollout.Node) { n.System = &rollout.System{Current: c.running, BootID: n.BootID} })
		c.done("rendered-strange")
		c.wait(lying, 60)
	case c.chance(10):
		c.running, c.lie = c.config, lieArgument
		c.write(func(n *rollout.Node) {
			n.System = &rollout.System{Current: c.running, BootID: n.BootID, Missing: []string{"audit=1"}}
		})
		c.done(c.running)
		c.wait(lying, 60)
	default:
		c.running = c.config
		c.settle()
	}
}

// settle says that the machine has what is desired, after its proof.
func (c *machine) settle() {
	c.at = idle
	c.write(func(n *rollout.Node) { n.System = &rollout.System{Current: c.running, BootID: n.BootID} })
	c.done(c.running)
}

// done says that the machine is done, and ends its cordon.
func (c *machine) done(config string) {
	c.write(func(n *rollout.Node) {
		n.Annotations[api.StateOfNode], n.Annotations[api.CurrentConfig], n.Annotations[api.Reason] = api.StateDone, config, ""
		if n.Annotations[api.CordonedFor] != "" {
			n.Cordoned = false
		}
		delete(n.Annotations, api.CordonedFor)
		delete(n.Annotations, api.FailedConfig)
	})
}

func (c *machine) fail(config, reason string) {
	c.at = idle
	c.write(func(n *rollout.Node) {
		n.System = &rollout.System{Current: c.running, BootID: n.BootID}
		n.Annotations[api.StateOfNode], n.Annotations[api.Reason], n.Annotations[api.FailedConfig] = api.StateDegraded, reason, config
		if n.Annotations[api.CordonedFor] != "" {
			n.Cordoned = false
		}
		delete(n.Annotations, api.CordonedFor)
	})
}

// tellTruth ends a lie: the machine does what it had said.
func (c *machine) tellTruth() {
	if c.lie == lieEarly {
		c.down()
		c.wait(rebooting, 8)
		return
	}
	c.settle()
}

// retry ends the failure of a configuration, as an administrator does who has removed its cause.
func (c *machine) retry() {
	c.failed = nil
	if n := c.m.nodes[c.name]; n != nil && n.Annotations[api.FailedConfig] != "" {
		c.write(func(n *rollout.Node) { delete(n.Annotations, api.FailedConfig) })
	}
}
