// Package simnodes simulates the nodes of a fleet, for tests of their controllers: nodes that take their
// configurations, fail, hang, vanish, come back with a new boot ID, and lie.
package simnodes

import (
	"fmt"
	"math/rand/v2"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// Cluster is where the Node objects are, and the time.
type Cluster interface {
	Now() time.Time
	// Node returns a node, which is only read; nil: there is none.
	Node(name string) *rollout.Node
	// Change changes a node that is there. Several changes in one step are made in their order.
	Change(name string, change func(n *rollout.Node))
}

// Machine is a simulated node: what its agent and its system do, in the order of the real ones.
type Machine struct {
	Running string // its configuration

	name   string
	rand   *rand.Rand
	m      Cluster
	rarely int  // faults are so many times rarer than in the table of Step
	faults bool // it may fail, hang, vanish and lie
	at     stage
	config string // that is applied
	until  time.Time
	boots  int
	drains int
	lies   int
	deaths int  // of its kubelet
	outage bool // it is not Ready for a reason of its own
	gone   bool // it does not come back before the end of the faults
	lie    string
	early  string          // that it downloads before its turn
	silent bool            // it never says what became of that
	failed map[string]bool // configurations that do not work on it
	deadly map[string]bool // those with which its kubelet does not run
	skew   time.Duration   // of its clock
	cannot map[string]bool // those with images that it cannot start
	before string          // the system that it had before; "": none
}

// New returns the machine of a node that has a configuration. Faults are rarely times rarer than with 1, for a fleet
// of so many more nodes.
func New(name string, m Cluster, config string, r *rand.Rand, rarely int) *Machine {
	return &Machine{Running: config, name: name, m: m, rand: r, rarely: rarely, faults: true, failed: map[string]bool{}, deadly: map[string]bool{}, cannot: map[string]bool{},
		skew: time.Duration(max(r.IntN(9)-6, 0)*(2*r.IntN(2)-1)) * 2 * time.Hour} // most clocks are right
}

// Fails makes a configuration fail on the machine, until Retry.
func (c *Machine) Fails(config string) { c.failed[config] = true }

// Kills makes a configuration one with which kubelet does not run on the machine. Only another one ends that.
func (c *Machine) Kills(config string) { c.deadly[config] = true }

// IsDead reports whether the machine needs another configuration to be Ready.
func (c *Machine) IsDead() bool { return c.IsDeadWith(c.Running) }

// IsDeadWith reports whether kubelet does not run on the machine with a configuration.
func (c *Machine) IsDeadWith(config string) bool { return c.deadly[config] }

// Calm ends the faults that come by themselves. A configuration that fails on the machine does so further.
func (c *Machine) Calm() { c.faults, c.gone = false, false }

// Drains returns how often the machine has begun to drain.
func (c *Machine) Drains() int { return c.drains }

// Boots returns how often the machine has booted.
func (c *Machine) Boots() int { return c.boots }

// Lies returns how often the machine has said something untrue.
func (c *Machine) Lies() int { return c.lies }

// Deaths returns how often the machine has come up without its kubelet.
func (c *Machine) Deaths() int { return c.deaths }

// IsBusyWithout reports whether the machine is in the middle of something else than the change to a configuration.
func (c *Machine) IsBusyWithout(config string) bool {
	return c.at == lying || c.at != idle && c.config != config
}

// Skew returns how far the machine's clock is ahead.
func (c *Machine) Skew() time.Duration { return c.skew }

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

// Disturbed reports whether the machine is, or will be, unavailable because of a configuration it was given.
func (c *Machine) Disturbed() bool {
	n := c.m.Node(c.name)
	return n != nil && n.Annotations[api.DesiredConfig] != "" && (c.at != idle || n.Annotations[api.DesiredConfig] != c.Running && !strays(n) || n.Annotations[api.CordonedFor] != "")
}

// strays reports whether a node waits with another system than it was given, until it is given that again.
func strays(n *rollout.Node) bool {
	desired := n.Annotations[api.DesiredConfig]
	return desired == n.Annotations[api.CurrentConfig] && n.Annotations[api.StateOfNode] != api.StateWorking && (n.Annotations[api.FailedConfig] == desired || n.Annotations[api.StateOfNode] == api.StateDone)
}

// BootByHand boots the system that a machine at rest had before, as somebody does at its console.
func (c *Machine) BootByHand() {
	if n := c.m.Node(c.name); n != nil && c.at == idle && c.before != "" && n.Annotations[api.DesiredConfig] == c.Running && n.Annotations[api.StateOfNode] == api.StateDone {
		c.boots++
		c.Running, c.before = c.before, c.Running
		c.write(func(n *rollout.Node) {
			n.BootID = fmt.Sprintf("%s-%d", c.name, c.boots)
			n.System = &api.JudgedSystem{Current: c.Running, BootID: n.BootID}
		})
	}
}

func (c *Machine) write(change func(n *rollout.Node)) { c.m.Change(c.name, change) }

func (c *Machine) wait(s stage, minutes int) {
	c.at, c.until = s, c.m.Now().Add(time.Duration(1+c.rand.IntN(minutes))*time.Minute)
}

func (c *Machine) chance(percent int) bool { return c.faults && c.rand.IntN(100*c.rarely) < percent }

// Step does what is due.
func (c *Machine) Step() {
	n := c.m.Node(c.name)
	if n == nil {
		return
	}
	desired := n.Annotations[api.DesiredConfig]
	switch {
	case c.outage:
		if !c.chance(80) {
			c.outage = false
			c.comeUp()
		}
		return
	case c.at == rebooting && (c.m.Now().Before(c.until) || c.gone && c.faults):
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
	case c.at == idle && desired == "": // nobody has taken it in
	case c.at == idle && desired != c.Running && n.Annotations[api.FailedConfig] != desired && strays(n):
		c.write(func(n *rollout.Node) {
			n.Annotations[api.StateOfNode], n.Annotations[api.Reason], n.Annotations[api.FailedConfig] = api.StateDegraded, "has "+c.Running, desired
		})
	case c.at == idle && desired != c.Running && n.Annotations[api.FailedConfig] != desired:
		c.config = desired
		c.write(func(n *rollout.Node) {
			n.Annotations[api.StateOfNode], n.Annotations[api.Reason], n.Annotations[api.CurrentConfig] = api.StateWorking, "", c.Running
			delete(n.Annotations, api.CannotStart)
		})
		c.wait(preparing, 10)
	case c.at == idle && desired == c.Running && (n.Annotations[api.StateOfNode] != api.StateDone || n.Annotations[api.CurrentConfig] != c.Running || n.Annotations[api.CordonedFor] != ""):
		c.settle()
	case c.at == idle:
		c.prefetch(n)
	case c.m.Now().Before(c.until):
	case c.at == preparing && (c.cannot[c.config] || c.chance(5)):
		c.fail(c.config, "cannot start the image")
		c.sayCannot(c.config)
	case c.at == preparing && (c.failed[c.config] || c.chance(5)):
		c.fail(c.config, "cannot pull")
	case c.at == preparing:
		c.write(func(n *rollout.Node) { n.Cordoned, n.Annotations[api.CordonedFor] = true, c.config })
		c.drains++
		c.wait(draining, 10)
	case c.at == draining && c.chance(5):
		c.lie, c.lies = lieEarly, c.lies+1
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
func (c *Machine) prefetch(n *rollout.Node) {
	says := n.System.Download
	switch asked := n.Annotations[api.Download]; {
	case asked == "" || asked == c.Running:
		c.early = ""
	case asked != c.early:
		c.early, c.until, c.silent = asked, c.m.Now().Add(time.Duration(1+c.rand.IntN(20))*time.Minute), c.chance(5)
		c.report(nil)
	case c.m.Now().Before(c.until), c.silent && c.faults, says != nil && says.Config == asked:
	case c.chance(10):
		c.report(&api.EarlyDownload{Config: asked, Failure: "cannot pull", FailedAt: c.m.Now().Add(c.skew)})
	case c.cannot[asked] || c.chance(5):
		c.report(&api.EarlyDownload{Config: asked, Failure: "cannot start the image", FailedAt: c.m.Now().Add(c.skew)})
		c.sayCannot(asked)
	default:
		c.report(&api.EarlyDownload{Config: asked})
	}
}

// report says how far a download is.
func (c *Machine) report(d *api.EarlyDownload) {
	c.write(func(n *rollout.Node) {
		s := *n.System
		s.Download = d
		n.System = &s
	})
}

// down makes the machine not Ready.
func (c *Machine) down() {
	c.write(func(n *rollout.Node) { n.Problem, n.NotReadySince = "is not Ready", c.m.Now() })
}

// comeUp makes the machine Ready, unless its kubelet is dead.
func (c *Machine) comeUp() {
	if c.IsDead() {
		c.deaths++
		return
	}
	c.write(func(n *rollout.Node) { n.Problem, n.NotReadySince = "", time.Time{} })
}

// boot brings the machine up, with the new system or, if that fails, with the old one.
func (c *Machine) boot(desired string) {
	c.boots++
	c.gone = false
	c.write(func(n *rollout.Node) { n.BootID = fmt.Sprintf("%s-%d", c.name, c.boots) })
	defer c.comeUp()
	switch {
	case c.failed[c.config] || c.chance(5):
		c.fail(c.config, "the machine has booted its old system again")
	case desired != c.config:
		c.Running, c.at = c.config, idle
		c.write(func(n *rollout.Node) { n.System = &api.JudgedSystem{Current: c.Running, BootID: n.BootID} })
	case c.chance(5):
		c.Running, c.lie, c.lies = c.config, lieCurrent, c.lies+1
		c.write(func(n *rollout.Node) { n.System = &api.JudgedSystem{Current: c.Running, BootID: n.BootID} })
		c.done("rendered-strange")
		c.wait(lying, 60)
	case c.chance(10):
		c.Running, c.lie, c.lies = c.config, lieArgument, c.lies+1
		c.write(func(n *rollout.Node) {
			n.System = &api.JudgedSystem{Current: c.Running, BootID: n.BootID, Missing: []string{"audit=1"}}
		})
		c.done(c.Running)
		c.wait(lying, 60)
	default:
		c.Running, c.before = c.config, c.Running
		c.settle()
	}
}

// settle says that the machine has what is desired, after its proof.
func (c *Machine) settle() {
	c.at = idle
	c.write(func(n *rollout.Node) { n.System = &api.JudgedSystem{Current: c.Running, BootID: n.BootID} })
	c.done(c.Running)
}

// done says that the machine is done, and ends its cordon.
func (c *Machine) done(config string) {
	c.write(func(n *rollout.Node) {
		n.Annotations[api.StateOfNode], n.Annotations[api.CurrentConfig], n.Annotations[api.Reason] = api.StateDone, config, ""
		if n.Annotations[api.DesiredConfig] == "" { // it joins, after a restore of what was before it was taken in
			n.Annotations[api.DesiredConfig] = config
		}
		if n.Annotations[api.CordonedFor] != "" {
			n.Cordoned = false
		}
		delete(n.Annotations, api.CordonedFor)
		delete(n.Annotations, api.FailedConfig)
	})
}

func (c *Machine) fail(config, reason string) {
	c.at = idle
	c.write(func(n *rollout.Node) {
		n.System = &api.JudgedSystem{Current: c.Running, BootID: n.BootID}
		n.Annotations[api.StateOfNode], n.Annotations[api.Reason], n.Annotations[api.FailedConfig] = api.StateDegraded, reason, config
		if n.Annotations[api.CordonedFor] != "" {
			n.Cordoned = false
		}
		delete(n.Annotations, api.CordonedFor)
	})
}

// sayCannot says that the machine cannot start the image of a configuration, which stays so in most cases.
func (c *Machine) sayCannot(config string) {
	c.cannot[config] = c.rand.IntN(4) > 0
	c.write(func(n *rollout.Node) {
		n.Annotations[api.CannotStart] = api.Cannot{Config: config, BootID: n.BootID, Verdicts: "processor", Reason: "cannot start the image"}.String()
	})
}

// tellTruth ends a lie: the machine does what it had said.
func (c *Machine) tellTruth() {
	if c.lie == lieEarly {
		c.down()
		c.wait(rebooting, 8)
		return
	}
	c.settle()
}

// Retry ends the failure of a configuration, as an administrator does who has removed its cause. What only waits for its
// turn is left to the controller.
func (c *Machine) Retry() {
	clear(c.failed)
	clear(c.cannot)
	if c.m.Node(c.name) != nil {
		c.write(func(n *rollout.Node) { delete(n.Annotations, api.CannotStart) })
	}
	if n := c.m.Node(c.name); n != nil && n.Annotations[api.FailedConfig] != "" && !strays(n) {
		c.write(func(n *rollout.Node) { delete(n.Annotations, api.FailedConfig) })
	}
}
