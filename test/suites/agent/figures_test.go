package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/hostsystemd"
)

// TestFigures prints what an agent costs, and fails if it makes too many requests, or needs too much
// memory. The time to the first status depends on the machine, so it is
// only printed.
func TestFigures(t *testing.T) {
	const idle = 5 * time.Minute
	if testing.Short() {
		t.Skip("watches an agent for minutes")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	w := newWorld(t)
	began := time.Now()
	agent := w.start()
	w.eventually("the first status", func() bool { return w.system() != "" })
	t.Logf("from its start to the first status: %.2f s", time.Since(began).Seconds())
	w.done("a")

	before := w.requests()
	w.want("b")
	w.done("b")
	change := w.requests() - before
	before = w.requests()
	time.Sleep(idle) // which is what is measured
	rest := w.requests() - before
	memory := float64(w.peak(agent.Process.Pid)) / 1e6
	t.Logf("requests: %d for a change without a reboot, %d in %s at rest; peak memory: %.1f MB", change, rest, idle, memory)
	if change > 40 || rest > int(idle.Minutes()) || memory > 40 {
		t.Error("that is too much")
	}
	w.rollout(agent)
}

// rollout prints what takes the time in a change with a reboot. The stand-in for pivot needs none, and the node has no
// pods, so what is seen is the agent's own.
func (w *world) rollout(agent *process) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "reboots"), nil, 0o644); err != nil {
		w.Fatal(err)
	}
	seen := w.follow()
	began := time.Now()
	w.want("c")
	w.eventually("the reboot is asked for", func() bool { return w.has("next") })
	last := began
	step := func(what string, at time.Time) {
		w.Helper()
		if at.IsZero() {
			w.Errorf("%s: never", what)
			return
		}
		w.Logf("%-32s %6.2f s", what, at.Sub(last).Seconds())
		last = at
	}
	step("desired -> download asked", w.called("apply --download-only", began))
	step("downloaded -> plan asked", w.called("apply --dry-run", began))
	step("planned -> cordoned", seen(func(n *corev1.Node) bool { return n.Spec.Unschedulable }))
	step("cordoned -> drained", seen(func(n *corev1.Node) bool { return n.Annotations[api.LastAppliedDrain] == api.DrainFor("c") }))
	step("drained -> reboot announced", seen(func(n *corev1.Node) bool { return n.Annotations[api.PostConfigAction] == api.ActionReboot }))
	step("announced -> commit asked", w.called("apply --window", began))
	before := last.Sub(began)

	agent.stop(syscall.SIGKILL)
	if err := os.RemoveAll("/run/pivot"); err != nil {
		w.Fatal(err)
	}
	if err := os.Rename(filepath.Join(w.dir, "next"), filepath.Join(w.dir, "current")); err != nil {
		w.Fatal(err)
	}
	booted := time.Now()
	last = booted
	agent = w.start()
	w.done("c")
	step("agent started -> proof asked", w.called("verify", booted))
	step("proof asked -> uncordoned", seen(func(n *corev1.Node) bool { return !n.Spec.Unschedulable }))
	step("uncordoned -> Done", seen(func(n *corev1.Node) bool {
		return n.Annotations[api.CurrentConfig] == "c" && n.Annotations[api.StateOfNode] == api.StateDone
	}))
	w.Logf("the agent's part of a rollout: %.2f s before the reboot, %.2f s after it", before.Seconds(), last.Sub(booted).Seconds())
	agent.stop(syscall.SIGTERM)
}

// follow watches the node, and returns a function that returns when something was the case first, after what it was
// asked for before; the zero time if it was not.
func (w *world) follow() (first func(is func(*corev1.Node) bool) time.Time) {
	w.Helper()
	type state struct {
		at   time.Time
		node *corev1.Node
	}
	changes, err := w.client.CoreV1().Nodes().Watch(w.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(changes.Stop)
	states := make(chan state, 1000)
	go func() {
		for c := range changes.ResultChan() {
			if n, ok := c.Object.(*corev1.Node); ok {
				states <- state{time.Now(), n}
			}
		}
	}()
	return func(is func(*corev1.Node) bool) time.Time {
		late := time.After(10 * time.Second)
		for {
			select {
			case s := <-states:
				if is(s.node) {
					return s.at
				}
			case <-late:
				return time.Time{}
			}
		}
	}
}

// called returns when pivot was first called with the beginning of a command after a time; the zero time if it was not.
func (w *world) called(command string, after time.Time) time.Time {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "times"))
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		at, call, _ := strings.Cut(line, " ")
		seconds, err := strconv.ParseFloat(at, 64)
		if err != nil {
			w.Fatal(err)
		}
		if t := time.UnixMicro(int64(seconds * 1e6)); t.After(after) && strings.HasPrefix(call, command) {
			return t
		}
	}
	return time.Time{}
}
