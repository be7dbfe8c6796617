package fault

// Stopped is the cause of a context that a signal has ended.
type Stopped struct {
	Signal string // its name, as "interrupt"
	ByHand bool   // it was ^C
}

func (s Stopped) Error() string { return s.Signal + " signal received" }

// kind returns the kind of an error that a signal has caused.
func (s Stopped) kind() Kind {
	if s.ByHand {
		return Interrupted
	}
	return Unavailable
}
