package node_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// gauges returns those of the agents' metrics that are 1, without the state.
func gauges(t *testing.T, w *nodeagent.World) (set []string) {
	t.Helper()
	var text strings.Builder
	if err := w.Metrics.Write(&text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		for _, name := range []string{"failing", "config_drift"} {
			if line == "pivot_agent_"+name+" 1\n" {
				set = append(set, name)
			}
		}
	}
	return set
}

// TestGauges: the metrics say that a node fails, and that its machine differs, as long as that is so, also while the
// agent tries again. They do not for another kind of failure, or for what only waits.
func TestGauges(t *testing.T) {
	failing, both := []string{"failing"}, []string{"failing", "config_drift"}
	bad := nodeagent.Config{Reboot: true, Drain: true, Unavailable: 1000}
	for name, c := range map[string]struct {
		prepare func(w *nodeagent.World)
		state   string   // that is reached, and kept
		want    []string // gauges, from then on
	}{
		"nothing": {prepare: func(*nodeagent.World) {}, state: api.StateDone},
		"drift":   {func(w *nodeagent.World) { w.Machine.Drifted = true }, api.StateDegraded, both},
		"a trial of no known length": {func(w *nodeagent.World) {
			w.Change(func(n *node.Node) { n.Annotations[api.Try] = "soon" })
		}, api.StateUnreconcilable, failing},
		"image mode": {func(w *nodeagent.World) {
			w.Change(func(n *node.Node) { n.Annotations[api.DesiredImage] = "registry.example/os@sha256:0" })
		}, api.StateDegraded, failing},
		"a registry that does not answer": {func(w *nodeagent.World) {
			w.Configs["bad"] = bad
			w.Want("bad")
		}, api.StateDegraded, failing},
		"drift during a download before its turn": {func(w *nodeagent.World) {
			w.Machine.Drifted = true
			ask(w, "reboot")
		}, api.StateDegraded, both},
		"a drain that waits": {func(w *nodeagent.World) {
			w.Forbidden, w.Policy.DrainLimit = "budget db", 24*time.Hour
			w.Want("reboot")
		}, api.StateWorking, nil},
		"a drain that has waited too long": {func(w *nodeagent.World) {
			w.Forbidden, w.Policy.DrainLimit = "budget db", 0
			w.Want("reboot")
		}, api.StateDegraded, failing},
	} {
		t.Run(name, func(t *testing.T) {
			w := nodeagent.New()
			w.Metrics = &node.Metrics{}
			c.prepare(w)
			if _, err := w.Run(func() bool { return w.State() == c.state && w.Machine.Told != nil && w.Machine.Told.State == c.state }); err != nil {
				t.Fatal(err)
			}
			w.Metrics = &node.Metrics{} // of another agent, which first has to find out what is the case
			reached := false
			_, err := w.Run(func() bool {
				got := gauges(t, w)
				if reached = reached || slices.Equal(got, c.want); reached && !slices.Equal(got, c.want) {
					t.Errorf("after %s the metrics %q are set", w.Since(), got)
				}
				return t.Failed() || w.Since() > 4*time.Hour
			})
			if !reached || err != nil {
				t.Errorf("it never is %q: %v: %s", c.want, err, w)
			}
		})
	}
}
