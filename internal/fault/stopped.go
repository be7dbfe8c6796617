package fault

import "os"

// Stopped is the cause of a context that a signal has ended.
type Stopped struct{ Signal os.Signal }

func (s Stopped) Error() string { return s.Signal.String() + " signal received" }

// kind returns the kind of an error that a signal has caused.
func (s Stopped) kind() Kind {
	if s.Signal == os.Interrupt {
		return Interrupted
	}
	return Unavailable
}
