package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/retry"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// waitEvery is the interval at which the status is read.
const waitEvery = 500 * time.Millisecond

func waitCommand() *cobra.Command {
	var flags hostFlags
	phase := string(pivot.PhaseDone)
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait until the transaction is done, committed or failed",
		Long: "Wait until the transaction is done, committed or failed. With --for committed, a transaction that is done\n" +
			"ends the wait, too. The exit status is 3 if the transaction fails or is interrupted while another phase\n" +
			"is waited for, or if nothing is under way that could reach the phase, and 69 on a timeout. Each step is\n" +
			"reported when it begins.",
		Example: "  pivot wait --timeout 30m\n  pivot wait --for committed",
		RunE: flags.onMachine(func(cmd *cobra.Command, m *machine.Machine) error {
			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			say := func(text string) {
				if !flags.quiet {
					fmt.Fprintln(cmd.ErrOrStderr(), "pivot: "+text)
				}
			}
			printed := ""
			report := func(s status.Status) {
				if text := summary(s); text != printed {
					printed = text
					say(text)
				}
			}
			atRest := func(s status.Status) bool {
				rests := m.AtRest(s)
				if rests {
					say("nothing to wait for: no first boot and no change is under way that reaches phase " + phase)
				}
				return rests
			}
			return waitFor(ctx, pivot.Phase(phase), m.Status, report, atRest)
		}),
	}
	flags.addRoot(cmd)
	cli.OneOf{Value: &phase, Allowed: []string{string(pivot.PhaseDone), string(pivot.PhaseCommitted), string(pivot.PhaseFailed)}}.Add(cmd, "for", "phase to wait for")
	cmd.Flags().Var(cli.Wait{For: &timeout}, "timeout", "wait at most `DURATION`; 0 waits forever")
	cli.Suggest(cmd, "timeout")
	return cmd
}

// waitFor reads the status until it has the wanted phase, or the transaction has ended, or nothing is under way
// (atRest) that could lead there. Nobody waits without end for what nobody does. A command that has failed while it was
// waited for counts as such, even if the machine is still in the wanted phase.
func waitFor(ctx context.Context, wanted pivot.Phase, look func(context.Context) (status.Status, error), report func(status.Status), atRest func(status.Status) bool) error {
	ran := false
	for {
		s, err := look(ctx)
		if err != nil {
			return err
		}
		report(s)
		reached := s.Phase == wanted || s.Phase == pivot.PhaseDone && wanted == pivot.PhaseCommitted
		switch {
		case wanted == pivot.PhaseFailed && s.Failed():
			return nil
		case reached && !(ran && s.Failed()):
			return nil
		case reached, ended(s.Phase), s.Failed() && s.LastCommand.Error.Permanent:
			return cli.ExitStatus(exitTransactionFailed)
		case atRest(s):
			return cli.ExitStatus(exitTransactionFailed)
		}
		ran = ran || s.LastCommand != nil && s.LastCommand.Result == status.ResultRunning
		if retry.Sleep(ctx, waitEvery) != nil {
			return fault.New(fault.Unavailable, "stopped waiting: the transaction is in phase %[2]s, and has not reached %[1]s", wanted, s.Phase).
				WithHint("pivot status says more")
		}
	}
}

// summary describes the state of a transaction, and of a command that failed, on one line.
func summary(s status.Status) string {
	text := "phase " + string(s.Phase)
	if s.Step != "" && !s.Failed() && (s.Phase == pivot.PhaseApplying || s.Phase == pivot.PhaseIdle) {
		text += ", step " + string(s.Step)
	}
	if s.Failed() {
		text += ", " + s.LastCommand.Name + " " + string(s.LastCommand.Result)
	}
	return text
}
