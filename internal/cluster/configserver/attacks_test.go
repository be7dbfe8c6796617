package configserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/test/tools/attack"
)

// TestAttacks are attempts of strangers at the server of configs: no answer has what only machines of a pool may have.
func TestAttacks(t *testing.T) {
	const secret = "secretofthepool"
	a := &apiServer{is: newToken("of-the-token", "worker", 0)}
	g := newGate(a, noon)
	g.set(a.is)
	g.set(newToken("of-infra", "infra", 0))
	late := newToken("of-yesterday", "worker", 0)
	late.Expires = noon().Add(-time.Hour)
	g.set(late)
	s := &provision.Server{
		Load: func(context.Context) (provision.Content, error) {
			return provision.Content{Roles: map[string]*authored.MachineConfig{"worker": rendered(t, "worker", secret)}}, nil
		},
		Stamp: func() (string, error) { return "", nil }, Log: func(string) {}, Guard: g, MaxConnections: 100, MaxPerAddress: 50,
	}
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	defer func() { stop(); <-ended }()
	attack.Listener{Name: "the server of configs", Address: l.Addr().String(), Path: "/config/worker", Secret: secret, Headers: []string{
		"Authorization: Bearer of-infra", "Authorization: Bearer of-yesterday", "Authorization: Bearer of-the-toke", "Authorization: Bearer of-the-token, of-infra", "Authorization: Bearer OF-THE-TOKEN",
		"Authorization: of-the-token", "Authorization: Basic of-the-token", fmt.Sprintf("Authorization: Bearer %x", provision.TokenDigest("of-the-token")), "Authorization: Bearer x\r\nAuthorization: Bearer of-the-token",
		"Cookie: Authorization=Bearer of-the-token", "X-Authorization: Bearer of-the-token", "Proxy-Authorization: Bearer of-the-token", "Authorization: Bearer of-the-token\x00", "Authorization: Bearer ", "X-Forwarded-For: 127.0.0.1",
	}, Well: func() error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/config/worker", nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer of-the-token")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err == nil && (answer.StatusCode != http.StatusOK || !strings.Contains(string(body), secret)) {
			err = fmt.Errorf("status %d, %d bytes", answer.StatusCode, len(body))
		}
		return err
	}}.Try(t)
}
