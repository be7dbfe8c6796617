// Package fleetlock is a client of the FleetLock protocol, version 1. Machines ask a server for a slot before they
// reboot, so that only some of a group do so at a time
// (https://coreos.github.io/zincati/development/fleetlock/protocol/).
package fleetlock

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
	"regexp"
	"strings"
	"time"
	"unicode"

	"machine-pivot/internal/fault"
)

// DefaultGroup is the group of a machine for which none is configured.
const DefaultGroup = "default"

// appID is the application ID from which Zincati derives a machine's ID in the fleet
// (src/identity). Using the same one makes a machine the same client for the server, whichever
// of the two updates it.
const appID = "de35106b6ec24688b63afddaa156679b"

const (
	connecting  = 30 * time.Second // limits a connection, and its TLS handshake
	timeout     = 30 * time.Minute // for one response, as Zincati: some servers drain the node first
	maxResponse = 16 << 10         // limits how many bytes of a response are read
	maxQuoted   = 300              // limits how many characters of a response go into the error
)

// ErrNotFound is the status of a response from a server that does not serve the protocol: at a
// wrong URL, or behind a proxy while it starts. The error is transient; the caller limits the time.
var ErrNotFound = errors.New("HTTP 404")

// Client talks to one server on behalf of one machine.
type Client struct {
	URL   string // base URL, without the protocol's paths
	Group string
	ID    string // identifies the machine, unique in its group
	// Proxy returns the proxy for a request; nil means no proxies.
	Proxy func(*url.URL) (*url.URL, error)
	// Roots are the trusted root CAs; nil means the system's.
	Roots *x509.CertPool
}

// Lock requests a slot. It is idempotent: a machine that holds a slot gets it again. The error
// is transient if a later try may succeed.
func (c Client) Lock(ctx context.Context) error { return c.post(ctx, "/v1/pre-reboot") }

// Unlock releases the slot. It succeeds without a slot, too.
func (c Client) Unlock(ctx context.Context) error { return c.post(ctx, "/v1/steady-state") }

// params is the body of a request.
type params struct {
	ID    string `json:"id"`
	Group string `json:"group"`
}

func (c Client) post(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	body, err := json.Marshal(map[string]params{"client_params": {c.ID, c.Group}})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("fleet-lock-protocol", "true")
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true, TLSHandshakeTimeout: connecting, DialContext: (&net.Dialer{Timeout: connecting}).DialContext, TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12}}
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
func (c Client) refusal(status int, body []byte) error {
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
		cause = ErrNotFound
	case !passes(status):
		kind, hint = fault.Refused, "see the settings fleetlock, fleetlock-group and fleetlock-id, and the server's configuration"
	}
	return fault.New(kind, "the fleet's lock at %s refuses (%w, for %s of group %s): %s", c.URL, cause, c.ID, c.Group, cmp.Or(why, "it says nothing more")).WithHint("%s", hint)
}

// passes reports whether the same request may succeed later. A malformed request never does.
func passes(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// ID returns the default ID of a machine in the fleet, derived from its machine ID as Zincati
// does, with sd_id128_get_machine_app_specific(3), so that the machine ID stays secret.
func ID(machineID string) (string, error) {
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

// CheckURL returns an error if text is not the URL of a server. It rejects credentials, because
// URLs appear in messages and the protocol has no authentication.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%q is not allowed; it is a URL, as https://fleetlock.example", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("a user, a query or a fragment is not allowed in the URL of the fleet's lock")
	}
	return nil
}

// CheckGroup returns an error if text is not a valid group.
func CheckGroup(text string) error {
	if !regexp.MustCompile(`^[a-zA-Z0-9.-]+$`).MatchString(text) {
		return fmt.Errorf("%q is not allowed; a group has letters, digits, points and dashes", text)
	}
	return nil
}

// CheckID returns an error if text is not a valid machine ID.
func CheckID(text string) error {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return fmt.Errorf("%q is not allowed; an ID has no white space", text)
	}
	return nil
}
