package node_test

import (
	"slices"
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// TestReplacement: programs that replace machines learn by an event, too, that another one is needed.
func TestReplacement(t *testing.T) {
	w := nodeagent.New()
	w.Policy.Unsupported = node.UnsupportedReplace
	w.Configs["disks"] = nodeagent.Config{Reboot: true, Installs: true}
	w.Want("disks")
	if _, err := w.Run(func() bool { return w.Note(api.NeedsReplacement) == "disks" }); err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{api.EventFailedToReconcile, api.EventNeedsReplacement} {
		if !slices.Contains(w.Events, reason) {
			t.Errorf("no event %s: %q", reason, w.Events)
		}
	}
}
