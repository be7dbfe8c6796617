package main

import (
	"fmt"
	"io"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/problem"
)

// printReport prints a report as the result of a command. It returns an exit status if the
// report has errors.
func printReport(w io.Writer, out cli.Output, report problem.Report) error {
	result := struct {
		OK       bool           `json:"ok"`
		Problems problem.Report `json:"problems"`
	}{!report.Failed(), report}
	if err := out.Write(w, result, func(w io.Writer) { show(w, report) }); err != nil {
		return err
	}
	return failed(report)
}

// show prints a report for people.
func show(w io.Writer, report problem.Report) {
	for _, p := range report {
		fmt.Fprintln(w, printable.Text(p.String()))
	}
}

// shown prints a report for people, and returns an exit status if it has errors.
func shown(w io.Writer, report problem.Report) error {
	show(w, report)
	return failed(report)
}

// failed returns an exit status if a report has errors.
func failed(report problem.Report) error {
	if report.Failed() {
		return cli.ExitStatus(fault.BadInput.ExitStatus())
	}
	return nil
}
