package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
)

// results writes the one document of a command that changes a machine, however the run ends. As text
// there is none: the log says what happens.
type results struct {
	out     cli.Output
	result  machine.Result   // filled in by the run
	machine *machine.Machine // nil before there is one
	written bool
}

// addResult adds -o to a command, and makes the command write its result. The command's RunE must be
// set.
func (f *hostFlags) addResult(cmd *cobra.Command) {
	r := &results{}
	f.results = r
	r.out.Add(cmd, api.Result)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := cli.Permitted(run(cmd, args))
		if failed := r.write(cmd, err); err == nil {
			err = failed
		}
		return err
	}
}

// follow makes a run fill in the result, which is written before the run waits for a reboot.
func (r *results) follow(cmd *cobra.Command, m *machine.Machine) {
	m.Result = &r.result
	m.Rebooting = func() { _ = r.write(cmd, nil) } // an error cannot be told any more
	r.machine = m
}

// write writes the result of a run that ended with err, unless the command has written its document
// already.
func (r *results) write(cmd *cobra.Command, err error) error {
	if r.written || r.out.IsText() {
		return nil
	}
	r.written = true
	if _, status := errors.AsType[cli.ExitStatus](err); status {
		err = nil // such as that nothing had to change
	}
	result := r.result.Completed(err)
	if r.machine != nil {
		result = r.machine.Conclude(cmd.Context(), err)
	}
	return r.out.Write(cmd.OutOrStdout(), result, func(io.Writer) {})
}

// printedPlan writes a plan, in place of the result, or returns the error of making it.
func (r *results) printedPlan(cmd *cobra.Command, plan pivot.Plan, err error) error {
	r.written = err == nil
	return printedPlan(cmd, *r.out.As(api.Plan), plan, err)
}
