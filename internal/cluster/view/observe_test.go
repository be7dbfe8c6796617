package view_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/view"
	"machine-pivot/internal/fault"
)

// TestObserve: all pages are read; what the cluster does not have, or the reader may not read, is named.
func TestObserve(t *testing.T) {
	s := server{
		pools: []any{object(t, `{"metadata":{"name":"worker"}}`)}, systems: http.StatusForbidden,
		nodes:  []any{object(t, `{"metadata":{"name":"a"}}`), object(t, `{"metadata":{"name":"b"}}`), object(t, `{"metadata":{"name":"c"}}`)},
		events: []any{object(t, `{"reason":"NodeDone","lastTimestamp":"2026-03-04T05:06:07Z","involvedObject":{"name":"a"}}`)},
	}
	f, err := view.Observe(t.Context(), s.client(t), now())
	if err != nil || len(f.Pools) != 1 || len(f.Nodes) != 3 || len(f.Events) != 1 || f.Events[0].LastTimestamp.Unix() != now().Unix() {
		t.Fatalf("%+v, %v", f, err)
	}
	want := []string{
		"rollouts (PoolRollout): the cluster does not have this kind of objects",
		`the state of systems (NodeSystem): cannot read ` + systems + `: no ` + systems + ` \x1b[2J`,
	}
	if !slices.Equal(f.Missing, want) {
		t.Errorf("missing %q", f.Missing)
	}
}

// TestObserveFails: without pools and nodes there is nothing to show.
func TestObserveFails(t *testing.T) {
	for name, c := range map[string]struct {
		server server
		kind   fault.Kind
		says   string
	}{
		"no rights":    {server{pools: http.StatusForbidden, nodes: http.StatusUnauthorized}, fault.Refused, "rbac-view.yaml"},
		"out of order": {server{pools: http.StatusInternalServerError}, fault.Unavailable, ""},
		"late":         {server{pools: []any{}, nodes: []any{}, events: http.StatusServiceUnavailable}, fault.Unavailable, ""},
	} {
		_, err := view.Observe(t.Context(), c.server.client(t), now())
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		if fault.KindOf(err) != c.kind || !strings.Contains(fault.HintOf(err), c.says) {
			t.Errorf("%s: %v, hint %q", name, err, fault.HintOf(err))
		}
	}
}
