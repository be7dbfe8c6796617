// Package crash is a simulated machine that can lose its process or its power
// at each effect that a first boot has on it, in the middle of one too.
//
// The first boot itself is the product's: its story, its journal, its durable
// replacement of files, its way to observe a host. Simulated are what is beyond
// the process: a disk that forgets what was not synced, libostree, the arrival
// of an image, the reboot. The machine is a value; nothing here is global.
package crash

import (
	"context"
	"errors"
	"fmt"
)

// Loss is what a crash takes away.
type Loss int

const (
	None      Loss = iota
	Kill           // the process: the same boot goes on and starts it again
	Terminate      // SIGTERM: the process ends by itself; the same boot goes on
	Leave          // the process, and then somebody reboots the machine in order
	Reset          // the machine; all that was written is there afterwards
	PowerCut       // the machine, with all that was not synced
	Scramble       // the machine, with what was not synced of the files' contents; their names stay
)

// Losses are all that a crash can be.
func Losses() []Loss { return []Loss{Kill, Terminate, Leave, Reset, PowerCut, Scramble} }

func (l Loss) String() string {
	return [...]string{"none", "kill", "terminate", "leave", "reset", "power cut", "scramble"}[l]
}

// reboots reports whether a new boot follows.
func (l Loss) reboots() bool { return l >= Leave }

// When is the moment of a crash.
type When int

const (
	Before When = iota
	Within      // what is left of the effect is for the effect to say
	After
)

// Point is one crash: at an effect, counted from 1 over the machine's whole life.
type Point struct {
	Effect int
	When   When
	Loss   Loss
}

func (p Point) String() string {
	return fmt.Sprintf("%s %s effect %d", p.Loss, [...]string{"before", "within", "after"}[p.When], p.Effect)
}

// crashed is what unwinds the process that is killed.
type crashed struct{ loss Loss }

// Effect is one thing that the program did to the machine.
type Effect struct {
	Name  string
	Parts bool // it has a middle
}

// power is what brings the crashes about.
type power struct {
	points  []Point  // still to come, in order
	Effects []Effect // so far
	crashes int      // that have been
	cancel  context.CancelFunc
	dead    bool // the process is killed: what its deferred calls do has no effect
}

var errDead = errors.New("the process is dead")

// effect does one effect, and crashes if it is time. half, if not nil, does a
// part of it.
func (p *power) effect(name string, half func(), do func() error) error {
	if p.dead {
		return errDead
	}
	p.Effects = append(p.Effects, Effect{name, half != nil})
	p.crashIf(Before)
	if half != nil {
		if p.next(Within) {
			half()
		}
		p.crashIf(Within)
	}
	if err := do(); err != nil {
		return err
	}
	p.crashIf(After)
	return nil
}

func (p *power) next(when When) bool {
	return len(p.points) > 0 && p.points[0].Effect == len(p.Effects) && p.points[0].When == when
}

func (p *power) crashIf(when When) {
	if !p.next(when) {
		return
	}
	loss := p.points[0].Loss
	p.points, p.crashes = p.points[1:], p.crashes+1
	if loss == Terminate {
		p.cancel()
		return
	}
	p.dead = true
	panic(crashed{loss})
}
