package machine

import (
	"context"

	"machine-pivot/pivot"
)

// Feature is a feature of a program, in a folder of its own: what it adds to changes, and its commands.
type Feature struct {
	Of       func(*Machine) pivot.Feature
	Commands []Command
}

// Command is a command of a feature.
type Command struct {
	Name, Short, Long, Example string
	Retries                    bool // it has the flag --retry-for
	Switches                   []Switch
	// Run runs the command, which reports its error itself. on has the switches that are on.
	Run func(ctx context.Context, m *Machine, on map[string]bool) error
}

// Switch is a flag that is on or off.
type Switch struct{ Name, Usage string }

// Joined returns the features of this machine, each made once for a command.
func (m *Machine) Joined() pivot.Features {
	if m.joined == nil {
		for _, f := range m.Features {
			m.joined = append(m.joined, f.Of(m))
		}
	}
	return m.joined
}
