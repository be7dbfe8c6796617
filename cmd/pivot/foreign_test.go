package main

import (
	"testing"

	"machine-pivot/internal/cli"
	"machine-pivot/test/tools/script"
)

// TestForeign: what users of other tools type is a usage error, and its hint is a call that
// exists.
func TestForeign(t *testing.T) { script.Foreign(t, rootCommand(cli.Build{}), foreign()) }
