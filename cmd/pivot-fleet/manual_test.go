package main

import (
	"testing"

	"machine-pivot/internal/cli"
	"machine-pivot/test/tools/manual"
)

// TestManual (P61): the manual page has the program's commands and flags.
func TestManual(t *testing.T) { manual.Check(t, "pivot-fleet.8", rootCommand(cli.Build{})) }

// TestExamples (P61): each command has an example, which it accepts.
func TestExamples(t *testing.T) { manual.CheckExamples(t, rootCommand(cli.Build{})) }
