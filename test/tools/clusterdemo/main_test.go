package main

import (
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/bootlab"
)

// TestClusterDemo is what "make cluster-demo" shows. It is part of "make nightly".
func TestClusterDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("boots machines")
	}
	if missing := bootlab.Missing(); len(missing) > 0 {
		need.Lacking(t, "cannot boot machines: lacking "+strings.Join(missing, ", "))
	}
	perform(t, t.Output(), "../../..")
}
