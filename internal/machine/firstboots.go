package machine

import (
	"context"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/retry"
)

// How long what ends the first boots of others may take after the network is up, and how often it is looked for.
const (
	othersTimeout = 90 * time.Second
	othersEvery   = 5 * time.Second
)

// AwaitOthers returns when what ends the first boots of others has ended, or an error after othersTimeout. Whoever
// commits or reboots in a first boot calls it first: that others have had time is no order. A system on trial that
// returns to the old one does not, because it must not stay.
func (m *Machine) AwaitOthers(ctx context.Context) error {
	policy := retry.Policy{First: time.Second, Cap: othersEvery, Bound: othersTimeout, Now: m.Retry.Now, Sleep: m.Retry.Sleep}
	return policy.Do(ctx, m.Progress.Waiting, func(context.Context) error { return m.checkOthers() })
}

// checkOthers returns an error if what ends the first boots of others has not ended. A system that has not started has
// no ID yet and gets one at its start, as the next one does; and it runs nothing that ends Ignition's first boot.
func (m *Machine) checkOthers() error {
	open, err := m.firstBootOpen()
	if err == nil {
		err = m.Host.CheckIgnitionEnded(open)
	}
	if m.Where().Started() {
		if err == nil {
			err = m.Host.CheckIdentity()
		}
		return err
	}
	if err != nil {
		err = fault.New(fault.Later, "%w", err).WithHint("%s", fault.HintOf(err))
	}
	return err
}
