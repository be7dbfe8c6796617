package hostpivot

import "machine-pivot/internal/pid1"

// Answer is the last answer of "pivot status" on a host, and the start of the system in which it was given. It is what
// the agent knows of the host while pivot runs. The file of a run tells only of that run, and to ask again would start
// another pivot for each look.
type Answer struct {
	status Status
	of     pid1.StartID // "": there is no answer
}

// Status returns the status of a host in a start of its system. run reads the file of the run that continues; it
// is nil if none does. ask asks pivot status, which happens during a run only if there is no answer of this
// start, or no file.
func (a *Answer) Status(now pid1.StartID, run, ask func() (Status, error)) (Status, error) {
	if run != nil && a.of == now {
		if file, err := run(); err == nil {
			return a.status.during(file), nil
		}
	}
	status, err := ask()
	if err == nil {
		a.status, a.of = status, now
	}
	return status, err
}

// during returns a status during a run, which writes a file. Only the progress of the run is from the file. What
// the host is, has and should have is not in it, or, as the phase, not compared with the host.
func (s Status) during(file Status) Status {
	s.Step, s.Percent, s.Phases = file.Step, file.Percent, file.Phases
	return s
}
