package pivot

import "context"

// Amend durably changes the parts of the journal that are independent of the transaction. It
// changes the saved content and the one in memory separately, so that the steps of this run are
// not added to an earlier transaction.
func (p *Progress) Amend(change func(*JournalContent) error) error {
	journal, err := p.Journal.Load()
	if err != nil {
		return err
	}
	if err := change(&journal); err != nil {
		return err
	}
	if err := p.Journal.Save(journal); err != nil {
		return err
	}
	return change(&p.Content)
}

// Download does the part of Converge that changes neither the running system nor the next boot:
// all checks and the pull. It returns the plan with what was learned about the image.
func (c *Converger) Download(ctx context.Context, plan Plan) (Plan, error) {
	if plan.wrong != nil || !plan.Changed {
		return plan, plan.wrong
	}
	if err := c.preflight(ctx, &plan); err != nil {
		return plan, err
	}
	t, err := c.transaction(plan)
	if err != nil {
		return plan, err
	}
	r, err := t.request(ctx, &plan)
	if err == nil {
		err = t.after(ctx, StepPull, &plan, false)
	}
	if err == nil {
		_, err = r.ForCommit(r.Commit)
	}
	return plan, err
}
