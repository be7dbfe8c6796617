package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/nodeagent"
)

// TestEachCallFails: whatever call fails once, the update ends as without that, and no message reports what has not
// happened: a change that was not written is no event.
func TestEachCallFails(t *testing.T) {
	for _, name := range []string{"image", "by a controller", "a drain by rule"} {
		s := stories()[name]
		settled := func(w *nodeagent.World) func() bool {
			return func() bool { return s.settled(w) && w.Machine.Told != nil && w.Machine.Told.State == s.state }
		}
		whole := s.world(nil)
		calls, err := whole.Run(settled(whole))
		if err != nil {
			t.Fatal(err)
		}
		for call := 1; call <= calls; call++ {
			w := s.world(nil)
			failed := ""
			before := w.Before
			w.Before = func(n int, name string) {
				if before != nil {
					before(n, name)
				}
				if n == call {
					failed = name
				}
			}
			w.Fault = call
			_, err := w.Run(settled(w))
			// A drain that fails is an event itself, and an event that fails is lost.
			said := slices.Contains([]string{"record event", "rehearse", "drain"}, failed) || slices.Equal(w.Events, whole.Events)
			if wrong := s.check(w, false); err != nil || len(wrong) > 0 || !said {
				t.Errorf("%s, call %d (%s) fails: %v, %q: %s", name, call, failed, err, wrong, w)
			}
		}
	}
}

// TestHandBackFails: a node is not reported as given back while its object cannot be written, and the next attempt
// gives it back.
func TestHandBackFails(t *testing.T) {
	prepare := noted(map[string]string{api.DesiredConfig: "reboot", api.StateOfNode: api.StateDegraded, api.FailedConfig: "reboot"}, false)
	whole := nodeagent.New()
	prepare(whole)
	if _, err := whole.HandBack(); err != nil {
		t.Fatal(err)
	}
	for call := 1; call <= whole.Calls(); call++ {
		w := nodeagent.New()
		prepare(w)
		failed := ""
		w.Before = func(n int, name string) {
			if n == call {
				failed = name
			}
		}
		w.Fault = call
		_, err := w.HandBack()
		if failed != "record event" && err == nil {
			t.Errorf("call %d (%s) fails, and it is given back: %s", call, failed, w)
		}
		if _, err := w.HandBack(); err != nil || w.Machine.RecordedBy != daemon || w.Node.Annotations[api.DesiredDrain] != "uncordon-a" || len(w.Violations) > 0 {
			t.Errorf("after call %d (%s): %v: %s", call, failed, err, w)
		}
	}
}

// TestAttemptsAreSaid: each attempt after the first one is an event, and so is the end.
func TestAttemptsAreSaid(t *testing.T) {
	s := stories()["a system that does not boot"]
	w := s.world(nil)
	if _, err := w.Run(func() bool { return s.settled(w) }); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(w.Said, "\n")
	for _, want := range []string{"commits panics once more (attempt 2 of 3)", "commits panics once more (attempt 3 of 3)"} {
		if strings.Count(said, want) != 1 {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}

// TestRebootThatDoesNotCome: a reboot that was accepted may take half an hour, and not longer.
func TestRebootThatDoesNotCome(t *testing.T) {
	for after, state := range map[time.Duration]string{30*time.Minute - time.Second: api.StateWorking, 30 * time.Minute: api.StateDegraded} {
		w := nodeagent.New()
		w.Machine.Stuck = true
		w.Want("reboot")
		agent := w.Agent()
		step := func() {
			t.Helper()
			wait, err := agent.Step(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if w.Machine.Pending == "" {
				w.Clock = w.Clock.Add(wait)
				w.Pass()
			}
		}
		for range 100 {
			step()
		}
		if w.Machine.Pending != "reboot" || w.State() != api.StateWorking {
			t.Fatalf("it is not about to reboot: %s", w)
		}
		w.Clock = w.Clock.Add(after)
		for range 3 {
			step()
		}
		if w.State() != state {
			t.Errorf("%s after it was accepted, the node is %s: %s", after, w.State(), w)
		}
	}
}

// TestMetrics: all metrics of an agent of a node at rest, and that probes may come at any time.
func TestMetrics(t *testing.T) {
	w := nodeagent.New()
	w.Metrics = &node.Metrics{Version: "1.4.0", Commit: "c"}
	w.Change(func(n *node.Node) {
		n.Annotations[api.CannotStart] = api.Cannot{Config: "bad", BootID: "0", Verdicts: "drivers,tpm"}.String()
	})
	proven := time.Time{}
	if _, err := w.Run(func() bool {
		if w.Machine.Verified > 0 && proven.IsZero() {
			proven = w.Clock
		}
		return w.Since() > time.Minute
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if w.Metrics.Alive(w.Clock) || w.Metrics.Ready(w.Clock) {
			t.Error("an agent whose steps the test makes is alive by itself")
		}
	}
	var text strings.Builder
	if err := w.Metrics.Write(&text); err != nil {
		t.Fatal(err)
	}
	var values []string
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			values = append(values, strings.TrimPrefix(strings.TrimSpace(line), "pivot_agent_"))
		}
	}
	want := []string{`pivot_build_info{program="pivot-agent",version="1.4.0",commit="c"} 1`, `node_state{state="Done"} 1`, `node_state{state="Working"} 0`, `node_state{state="Degraded"} 0`, `node_state{state="Unreconcilable"} 0`,
		"failing 0", "config_drift 0", "cordoned 0", `cannot_start{verdict="processor"} 0`, `cannot_start{verdict="programs"} 0`, `cannot_start{verdict="drivers"} 1`, `cannot_start{verdict="file-systems"} 0`,
		`cannot_start{verdict="initramfs"} 0`, `cannot_start{verdict="tpm"} 1`, `cannot_start{verdict="secure-boot"} 0`, `cannot_start{verdict="way-back"} 0`, "failures_total 0", "unreachable_total 0", "workloads_unknown 0",
		fmt.Sprintf("last_proof_timestamp_seconds %v", float64(proven.Unix()))}
	if !slices.Equal(values, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(values, "\n"), strings.Join(want, "\n"))
	}
}
