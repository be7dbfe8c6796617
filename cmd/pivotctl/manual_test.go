package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/test/tools/manual"
)

// TestManual (P61): the manual page describes each command as the program does.
func TestManual(t *testing.T) { manual.Check(t, "pivotctl.1", rootCommand(cli.Build{})) }

// TestOtherProgram: each command of pivot, typed as one of pivotctl, names the right program.
func TestOtherProgram(t *testing.T) {
	page, err := os.ReadFile("../../man/pivot.8")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`(?m)^\.Ss ([a-z\\-]+)`).FindAllSubmatch(page, -1)
	if len(documented) < 10 {
		t.Fatalf("the page has only the commands %q", documented)
	}
	for _, command := range documented {
		name := strings.ReplaceAll(string(command[1]), `\`, "")
		if name == "version" {
			continue // both programs have it
		}
		root := rootCommand(cli.Build{})
		root.SetArgs([]string{name})
		if err := root.Execute(); err == nil || !strings.Contains(fault.HintOf(err), "pivot has it") {
			t.Errorf("pivotctl %s: %v, hint %q", name, err, fault.HintOf(err))
		}
	}
}

// TestExamples (P61): each command has an example, which it accepts.
func TestExamples(t *testing.T) { manual.CheckExamples(t, rootCommand(cli.Build{})) }
