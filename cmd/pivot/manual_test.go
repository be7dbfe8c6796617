package main

import (
	"testing"

	"machine-pivot/internal/cli"
	"machine-pivot/test/tools/manual"
)

// TestManual (P61): the manual page describes each command as the program does.
func TestManual(t *testing.T) { manual.Check(t, "pivot.8", rootCommand(cli.Build{})) }

// TestTerms (P61): the manual page explains each word of this project that a message may have.
func TestTerms(t *testing.T) { manual.CheckTerms(t, "pivot.8") }

// TestExamples (P61): each command has an example, which it accepts.
func TestExamples(t *testing.T) { manual.CheckExamples(t, rootCommand(cli.Build{})) }
