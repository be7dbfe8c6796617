package main

import (
	"testing"

	"machine-pivot/internal/cli"
	"machine-pivot/test/manual"
)

// TestManual (P61): the manual page says of each command what the program does.
func TestManual(t *testing.T) { manual.Check(t, "pivot.8", rootCommand(cli.Build{})) }

// TestExamples (P61): each command has an example, which it takes.
func TestExamples(t *testing.T) { manual.CheckExamples(t, rootCommand(cli.Build{})) }
