package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/host"
)

// TestServices (P56): the calls of systemctl, and the results from its output.
func TestServices(t *testing.T) {
	var calls []string
	h := host.New(t.TempDir())
	h.Run = func(_ context.Context, argv ...string) ([]byte, error) {
		call := strings.Join(argv, " ")
		calls = append(calls, call)
		switch {
		case strings.Contains(call, "SystemState"):
			return []byte("SystemState=starting\n"), nil
		case strings.Contains(call, "show"): // in systemd's order, not in the requested one
			return []byte("Id=a.service\nType=oneshot\nResult=success\nLoadState=loaded\nActiveState=inactive\nSubState=dead\nConditionResult=yes\n"), nil
		case strings.Contains(call, "broken"):
			return nil, errors.New("it is broken")
		}
		return nil, nil
	}
	s, ctx := h.Services(), t.Context()
	for _, err := range []error{s.DaemonReload(ctx), s.Reload(ctx, "a.service"), s.Restart(ctx, "b.service"), s.UpdateTrust(ctx)} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := s.Restart(ctx, "broken.service"); err == nil {
		t.Error("a restart that fails is none")
	}
	state, err := s.State(ctx, "a.service")
	if want := (host.UnitState{ID: "a.service", Load: "loaded", Active: "inactive", Sub: "dead", Result: "success", Type: "oneshot", Condition: true}); err != nil || state != want {
		t.Errorf("state %+v, want %+v, %v", state, want, err)
	}
	if starting, err := s.Starting(ctx); err != nil || !starting {
		t.Errorf("starting %v, %v", starting, err)
	}
	want := []string{
		"systemctl --no-ask-password daemon-reload", "systemctl --no-ask-password reload -- a.service", "systemctl --no-ask-password restart -- b.service", "update-ca-trust",
		"systemctl --no-ask-password restart -- broken.service",
		"systemctl show --property=Id,LoadState,ActiveState,SubState,Result,Type,ConditionResult,Job -- a.service", "systemctl show --property=SystemState",
	}
	if fmt.Sprint(calls) != fmt.Sprint(want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
	if h.Runs() {
		t.Error("a directory is taken for the machine that runs")
	}
}
