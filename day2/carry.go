package day2

import (
	"context"
	"errors"

	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
)

// Move is a change of the machine. Its longest part can be done in advance.
type Move interface {
	Plan(ctx context.Context, options RunOptions) (pivot.Plan, error)
	Download(ctx context.Context) (Downloaded, error)
	Run(ctx context.Context, options RunOptions) (changed bool, err error)
}

// Carry makes a move when the machine may be changed. If a feature waits before there is a plan, Carry downloads
// everything first, unless downloaded says that this was done. Until the end of the wait neither the running system nor the
// next boot changes. locked runs a step while no other pivot runs; it is not called for the wait. A run that ends with
// pivot.Again begins again with the wait. Carry reports whether anything had to change.
func Carry(ctx context.Context, m *machine.Machine, move Move, downloaded bool, locked func(func() error) error) (changed bool, err error) {
	options := RunOptions{Downloaded: downloaded}
	run := func() (err error) {
		changed, err = move.Run(ctx, options)
		return err
	}
	features := m.Joined()
	if err := features.Before(ctx, pivot.StepRead, nil); err != nil {
		return false, err
	}
	if demand, _ := features.Demand(nil); demand != pivot.DemandWait {
		err = locked(run)
		return changed, err
	}
	if !downloaded {
		err := locked(func() error {
			d, err := move.Download(ctx)
			options.Unchanged, options.Downloaded = !d.Changed, d.Kept
			return err
		})
		if err != nil {
			return false, err
		}
	}
	for {
		if !options.Unchanged {
			if err = features.Before(ctx, pivot.StepWait, nil); err != nil {
				return false, explainStop(ctx, m, err)
			}
		}
		err = locked(run)
		if _, again := errors.AsType[pivot.Again](err); !again {
			return changed, err
		}
		options.Unchanged = false
	}
}
