// Package crash simulates a machine that can lose its process or its power before, during and after
// each effect that a first boot has on it.
//
// The first boot is the product's code: its steps, its journal, its durable replacement of files,
// its inspection of the host. Simulated is everything outside of the process: a disk that forgets
// what was not synced, libostree, the import of an image, the reboot. All state is in the machine
// value; the package has no globals.
package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// Loss is what a crash takes away.
type Loss int

const (
	None      Loss = iota
	Kill           // the process is killed; the same boot continues and starts it again
	Terminate      // SIGTERM: the process exits by itself; the same boot continues
	Leave          // the process is killed, then follows an orderly reboot
	Reset          // the machine is reset; everything written survives
	PowerCut       // the machine loses power, and everything not synced
	Scramble       // the machine loses power, and unsynced file contents; names survive
)

// Losses returns every kind of crash.
func Losses() []Loss { return []Loss{Kill, Terminate, Leave, Reset, PowerCut, Scramble} }

func (l Loss) String() string {
	return [...]string{"none", "kill", "terminate", "leave", "reset", "power cut", "scramble"}[l]
}

// reboots reports whether a new boot follows the loss.
func (l Loss) reboots() bool { return l >= Leave }

// When is the moment of a crash, relative to an effect.
type When int

const (
	Before When = iota
	Within      // halfway; each effect defines what is done by then
	After
)

// Point is one crash. Effect counts from 1 over the whole life of the machine.
type Point struct {
	Effect int
	When   When
	Loss   Loss
}

func (p Point) String() string {
	return fmt.Sprintf("%s %s effect %d", p.Loss, [...]string{"before", "within", "after"}[p.When], p.Effect)
}

// crashed is the panic value that unwinds the killed process.
type crashed struct{ loss Loss }

// Effect is one change that the program made to the machine.
type Effect struct {
	Name  string
	Parts bool // it can be interrupted halfway: Within applies
	Key   bool // a sample has each crash at this effect
}

// power counts the effects and triggers the crashes.
type power struct {
	points  []Point  // still to come, in order
	Effects []Effect // so far
	crashes int      // number of crashes so far
	cancel  context.CancelFunc
	dead    bool // the process is killed: effects of its deferred calls are refused
	key     bool // effects are Key
	known   func(state string) bool
	order
	path  string                                 // of the file of the effect, if it is one on a file
	reach func(effect, path string) pivot.Writes // of an effect; nil: the order is not checked
}

// ErrKnown is the error of a life that StopIfKnown has ended.
var ErrKnown = errors.New("a machine in this state was followed already")

// StopIfKnown ends the life with ErrKnown at the first start after its last crash, if known reports
// that another machine in the same state was followed to its end. Machines in the same state
// continue alike.
func (p *power) StopIfKnown(known func(state string) bool) { p.known = known }

var errDead = errors.New("the process is dead")

// effect runs do as one effect, and crashes if a crash is due. half does a part of the effect; nil
// means that the effect is atomic.
func (p *power) effect(name string, half func(), do func() error) error {
	if p.dead {
		return errDead
	}
	if verb, base, _ := strings.Cut(name, " "); hostfiles.IsTemporary(base) {
		name = verb + " temporary" // its name is random
	}
	p.Effects = append(p.Effects, Effect{name, half != nil, p.key})
	if p.reach != nil {
		p.wrote(name, p.reach(name, p.path))
	}
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
		p.signal()
		p.cancel()
		return
	}
	p.dead = true
	panic(crashed{loss})
}
