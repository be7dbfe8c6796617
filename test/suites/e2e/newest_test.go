package e2e_test

import (
	"testing"

	"machine-pivot/test/worlds/vm"
)

// TestNewestRelease runs the newest release that guests can be made of, with composefs from the beginning. It is part of
// "make nightly".
func TestNewestRelease(t *testing.T) {
	spec := vm.GuestSpec{
		Suite: vm.Forky, Overlay: []vm.TreeFile{{Path: "/" + prepareRoot, Mode: 0o644, Content: []byte(composefsNeeded)}}, SameKernel: true,
	}
	t.Run("soft reboots", func(t *testing.T) { softReboots(t, newLab(t, spec)) })
}
