package view_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"k8s.io/client-go/rest"

	"machine-pivot/internal/cluster/view"
)

// server is an API server of a test: objects by path. A path with a number answers with that status; a path with
// text answers with it, as that of a log does. Lists are given in pages of two.
type server map[string]any

const pageLength = 2

func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, there := s[r.URL.Path]
	if !there {
		answer = http.StatusNotFound
	}
	switch answer := answer.(type) {
	case int:
		w.WriteHeader(answer)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "message": "no " + r.URL.Path + " \x1b[2J"})
	case string:
		_, _ = w.Write([]byte(answer))
	case []any:
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		metadata := map[string]any{}
		if from+pageLength < len(answer) {
			metadata["continue"] = strconv.Itoa(from + pageLength)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": metadata, "items": answer[from:min(from+pageLength, len(answer))]})
	default:
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// client returns a client of the server, below a path as that of a proxy.
func (s server) client(t *testing.T) *view.Client {
	t.Helper()
	web := httptest.NewServer(http.StripPrefix("/k8s/1", s))
	t.Cleanup(web.Close)
	client, err := view.NewClient(&rest.Config{Host: web.URL + "/k8s/1"})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// object returns an object from its JSON.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

// Paths of the API server.
const (
	pools    = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"
	configs  = "/apis/machineconfiguration.openshift.io/v1/machineconfigs"
	rollouts = "/apis/machine-pivot.io/v1alpha1/poolrollouts"
	systems  = "/apis/machine-pivot.io/v1alpha1/nodesystems"
	nodes    = "/api/v1/nodes"
	events   = "/api/v1/namespaces/default/events"
)
