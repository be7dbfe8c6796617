package slot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"machine-pivot/internal/fault"
)

// defaultGroup is the group of a machine for which none is configured.
const defaultGroup = "default"

// appID is the application ID from which Zincati derives a machine's ID in the fleet
// (src/identity). Using the same one makes a machine the same client for the server, whichever
// of the two updates it.
const appID = "de35106b6ec24688b63afddaa156679b"

const (
	connectWithin = 30 * time.Second // limits a connection, and its TLS handshake
	answerWithin  = 30 * time.Minute // for one response, as Zincati: some servers drain the node first
	maxResponse   = 16 << 10         // limits how many bytes of a response are read
	maxQuoted     = 300              // limits how many characters of a response go into the error
)

// errNotFound is the status of a response from a server that does not serve the protocol: at a
// wrong URL, or behind a proxy while it starts. The error is transient; the caller limits the time.
var errNotFound = errors.New("HTTP 404")

// client is a client of the FleetLock protocol, version 1
// (https://coreos.github.io/zincati/development/fleetlock/protocol/). It talks to one server on behalf of one machine.
type client struct {
	URL   string // base URL, without the protocol's paths
	Group string
	ID    string // identifies the machine, unique in its group
	// Proxy returns the proxy for a request; nil means no proxies.
	Proxy func(*url.URL) (*url.URL, error)
	// Roots are the trusted root CAs; nil means the system's.
	Roots *x509.CertPool
}

// lock requests a slot. It is idempotent: a machine that holds a slot gets it again. The error
// is transient if a later try may succeed.
func (c client) lock(ctx context.Context) error { return c.post(ctx, "/v1/pre-reboot") }

// unlock releases the slot. It succeeds without a slot, too.
func (c client) unlock(ctx context.Context) error { return c.post(ctx, "/v1/steady-state") }

// clientParams is the body of a request.
type clientParams struct {
	ID    string `json:"id"`
	Group string `json:"group"`
}

func (c client) post(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, fmt.Errorf("no answer within %v", answerWithin))
	defer cancel()
	body, err := json.Marshal(map[string]clientParams{"client_params": {c.ID, c.Group}})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("fleet-lock-protocol", "true")
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true, TLSHandshakeTimeout: connectWithin, DialContext: (&net.Dialer{Timeout: connectWithin}).DialContext, TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12}}
	if c.Proxy != nil {
		transport.Proxy = func(r *http.Request) (*url.URL, error) { return c.Proxy(r.URL) }
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a redirect would turn the POST into a GET
	}}
	answer, err := client.Do(request)
	if err != nil {
		if ended := context.Cause(ctx); ended != nil {
			err = fmt.Errorf("%w: %w", err, ended)
		}
		return fault.New(fault.Unavailable, "cannot reach the fleet's lock: %w", err).
			WithHint("does this machine reach %s? (network, DNS, proxy, certificate, is the server up?)", c.URL)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxResponse)) // ignore the error: the status alone decides
	return c.refusal(answer.StatusCode, text)
}

// refusal returns the error for a response other than 200 OK. The body should give the reason.
func (c client) refusal(status int, body []byte) error {
	var said struct{ Kind, Value string }
	why := strings.TrimSpace(string(body))
	if json.Unmarshal(body, &said) == nil && said.Kind != "" {
		why = said.Kind
		if said.Value != "" && said.Value != said.Kind {
			why += ": " + said.Value
		}
	}
	if runes := []rune(why); len(runes) > maxQuoted {
		why = string(runes[:maxQuoted]) + "…"
	}
	kind, hint := fault.Unavailable, "another machine of group "+c.Group+" may have the slot; the server's own log says more"
	cause := fmt.Errorf("HTTP %d", status)
	switch {
	case status == http.StatusNotFound:
		cause = errNotFound
	case !mayPass(status):
		kind, hint = fault.Refused, "see the settings fleetlock, fleetlock-group and fleetlock-id, and the server's configuration"
	}
	return fault.New(kind, "the fleet's lock at %s refuses (%w, for %s of group %s): %s", c.URL, cause, c.ID, c.Group, cmp.Or(why, "it says nothing more")).WithHint("%s", hint)
}

// mayPass reports whether the same request may succeed later. A malformed request never does.
func mayPass(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// fleetID returns the default ID of a machine in the fleet, derived from its machine ID as Zincati
// does, with sd_id128_get_machine_app_specific(3), so that the machine ID stays secret.
func fleetID(machineID string) (string, error) {
	key, err := hex.DecodeString(strings.TrimSpace(machineID))
	if err != nil || len(key) != 16 {
		return "", fault.New(fault.Refused, "cannot derive this machine's ID for the fleet's lock: /etc/machine-id is none").
			WithHint("give it one: systemd-machine-id-setup, or the setting fleetlock-id")
	}
	app, err := hex.DecodeString(appID)
	if err != nil {
		return "", err
	}
	sum := hmac.New(sha256.New, key)
	sum.Write(app)
	id := sum.Sum(nil)[:16]
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // as a UUID of version 4
	return hex.EncodeToString(id), nil
}
