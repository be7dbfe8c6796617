package pivot

// A new system is entered only once if that is known to be possible for the plan that is committed: for its boot entry,
// too, of which the image may bring a part. So it is judged when a plan is made, and again when its image is there.

// trying returns the trial of the new system; nil if it has none.
func (p Plan) trying() *Trying {
	if p.noFallback != nil {
		return nil
	}
	return p.req.Trying
}

// Once says how the new system is entered only once, and what that does not cover; "" if it is not to be on trial.
func (p Plan) Once() string {
	if !p.Tries() {
		return ""
	}
	return p.once
}

// NoFallback returns why the plan has no fallback although its request has one; nil if it has one, or none was asked for.
func (p Plan) NoFallback() error { return p.noFallback }

// judgedOnce returns the plan with what is known now about entering the new system only once: without its fallback if no
// way is known.
func (p Plan) judgedOnce() Plan {
	trying := p.trying()
	if trying == nil {
		return p
	}
	how, err := trying.Once(p)
	p.once = how
	if trying.Fallback {
		p.noFallback = err
	}
	return p
}

// onceLearned judges a plan that has learned what its image has, and notes what differs from the notes before.
func (c *Converger) onceLearned(plan Plan) Plan {
	if !plan.Tries() {
		return plan
	}
	learned := plan.judgedOnce()
	switch {
	case learned.noFallback != nil:
		c.Progress.Note("without a fallback: " + learned.noFallback.Error())
	case learned.once != plan.once:
		c.Progress.Note(learned.once)
	}
	return learned
}
