// Package fleetlock is a FleetLock server for tests. It refuses requests that violate the protocol,
// and fails the test.
package fleetlock

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Server is a FleetLock server with groups of slots.
type Server struct {
	*httptest.Server
	mu      sync.Mutex
	slots   map[string]int      // number of slots by group
	holders map[string][]string // machine IDs by group
	asked   []string            // operations of valid requests
	broken  []string            // errors of invalid requests
	down    int                 // number of requests still to be answered with status
	status  int
}

// Start starts a server over TLS with one group, "default", that has the given number of slots.
func Start(t testing.TB, slots int) *Server {
	t.Helper()
	return start(t, slots, httptest.NewTLSServer)
}

// StartPlain is Start without TLS, for clients that know this machine by another name.
func StartPlain(t testing.TB, slots int) *Server {
	t.Helper()
	return start(t, slots, httptest.NewServer)
}

func start(t testing.TB, slots int, listen func(http.Handler) *httptest.Server) *Server {
	t.Helper()
	s := &Server{slots: map[string]int{"default": slots}, holders: map[string][]string{}}
	s.Server = listen(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.Close()
		for _, what := range s.broken {
			t.Errorf("a request breaks the protocol: %s", what)
		}
	})
	return s
}

// CA returns the server's certificate in PEM.
func (s *Server) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// Give gives a slot of a group to a machine, as if it had requested it.
func (s *Server) Give(group, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders[group] = append(s.holders[group], id)
}

// Take removes all holders of a group.
func (s *Server) Take(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holders, group)
}

// Down answers the next n requests with 503.
func (s *Server) Down(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.status = n, http.StatusServiceUnavailable
}

// Starting answers the next n requests with 404, as a proxy does for a server that starts.
func (s *Server) Starting(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.status = n, http.StatusNotFound
}

// Holders returns the IDs of the machines that hold a slot of a group.
func (s *Server) Holders(group string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.holders[group])
}

// Asked returns the valid requests since the last call, like "pre-reboot steady-state".
func (s *Server) Asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.asked = nil }()
	return strings.Join(s.asked, " ")
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	group, id, err := read(r)
	if err != nil {
		s.broken = append(s.broken, err.Error())
		refuse(w, http.StatusBadRequest, "invalid_request", err.Error())
		return
	}
	operation := strings.TrimPrefix(r.URL.Path, "/v1/")
	s.asked = append(s.asked, operation)
	held := slices.Index(s.holders[group], id)
	switch {
	case s.down > 0:
		s.down--
		w.WriteHeader(s.status)
	case s.slots[group] == 0:
		refuse(w, http.StatusBadRequest, "unknown_group", "group "+group+" is not configured")
	case operation == "steady-state" && held >= 0:
		s.holders[group] = slices.Delete(s.holders[group], held, held+1)
	case operation == "pre-reboot" && held < 0 && len(s.holders[group]) >= s.slots[group]:
		refuse(w, http.StatusInternalServerError, "failed_lock", "all slots of "+group+" are taken")
	case operation == "pre-reboot" && held < 0:
		s.holders[group] = append(s.holders[group], id)
	}
}

// read returns the group and ID of a request, or how it violates the protocol.
func read(r *http.Request) (group, id string, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", "", err
	}
	var text struct {
		ClientParams *struct{ ID, Group *string } `json:"client_params"`
	}
	switch {
	case r.Method != http.MethodPost:
		return "", "", fmt.Errorf("method %s", r.Method)
	case r.URL.Path != "/v1/pre-reboot" && r.URL.Path != "/v1/steady-state":
		return "", "", fmt.Errorf("path %s", r.URL.Path)
	case r.Header.Get("fleet-lock-protocol") != "true":
		return "", "", fmt.Errorf("header fleet-lock-protocol: %q", r.Header.Get("fleet-lock-protocol"))
	case json.Unmarshal(body, &text) != nil || text.ClientParams == nil || text.ClientParams.ID == nil || text.ClientParams.Group == nil:
		return "", "", fmt.Errorf("body %s", body)
	}
	group, id = *text.ClientParams.Group, *text.ClientParams.ID
	if id == "" || !regexp.MustCompile(`^[a-zA-Z0-9.-]+$`).MatchString(group) {
		return "", "", fmt.Errorf("id %q of group %q", id, group)
	}
	return group, id, nil
}

func refuse(w http.ResponseWriter, status int, kind, value string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"kind": kind, "value": value}) // the client sees the status
}
