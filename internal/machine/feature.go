package machine

import (
	"context"

	"machine-pivot/pivot"
)

// Feature is a feature of a program, in a folder of its own: what it adds to changes, and its commands.
type Feature struct {
	Of       func(*Machine) pivot.Feature
	Commands []Command
	// Flags are those of the commands that change a machine.
	Flags []Flag
	// Check returns an error if flags cannot be used as they are given, and the name of one that asks for a reboot; nil:
	// all can, and none does.
	Check func(Given) (reboots string, err error)
}

// Flag is a flag of a feature: for a duration if it has a Bare one, for one of the Allowed values, or repeatable.
type Flag struct {
	Name, Usage string
	Bare        string   // the duration if none is given
	Allowed     []string // the first one is the default
	Suggests    []string // values for the completion
}

// Given are the values of the flags of features that are given, by name.
type Given map[string][]string

// Command is a command of a feature.
type Command struct {
	Name, Short, Long, Example string
	Retries                    bool // it has the flag --retry-for
	Switches                   []Switch
	// Check returns an error if the command cannot be used here; nil: it can. byUnit says that a unit runs it.
	Check func(m *Machine, byUnit bool) error
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
