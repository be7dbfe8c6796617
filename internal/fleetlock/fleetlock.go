// Package fleetlock is a client of FleetLock, version 1: the protocol by which machines of a
// fleet ask a server for a slot before they reboot, so that only so many of a group do at a
// time (https://coreos.github.io/zincati/development/fleetlock/protocol/).
package fleetlock

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"

	"machine-pivot/internal/fault"
)

// DefaultGroup is the group of machines of which nobody says another.
const DefaultGroup = "default"

// appID is Zincati's, from which it derives a machine's ID in the fleet (src/identity): a
// machine that either of the two updates is one machine for the server.
const appID = "de35106b6ec24688b63afddaa156679b"

const (
	patience  = 30 * time.Second // for one answer
	maxAnswer = 16 << 10         // bytes of one that are read
	maxTold   = 300              // characters of one that are told
)

// Client asks one server on behalf of one machine.
type Client struct {
	URL   string // below which the protocol's paths are
	Group string
	ID    string // of the machine, unique in its group
	// Proxy is the one that a request goes through; nil: none.
	Proxy func(*url.URL) (*url.URL, error)
	// Roots are the authorities that the server's certificate may be of; nil: the system's.
	Roots *x509.CertPool
}

// Lock asks for a slot. Who has one gets it again. An error is transient if the server, or
// the way to it, may say otherwise later.
func (c Client) Lock(ctx context.Context) error { return c.post(ctx, "/v1/pre-reboot") }

// Unlock gives the slot back. Who has none succeeds, too.
func (c Client) Unlock(ctx context.Context) error { return c.post(ctx, "/v1/steady-state") }

// params is the body of a request.
type params struct {
	ID    string `json:"id"`
	Group string `json:"group"`
}

func (c Client) post(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
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
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12}}
	if c.Proxy != nil {
		transport.Proxy = func(r *http.Request) (*url.URL, error) { return c.Proxy(r.URL) }
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // what is redirected is asked for with another method
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
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // the status is the answer
	return c.refusal(answer.StatusCode, text)
}

// refusal is the error for an answer that is no consent. Its body should say why.
func (c Client) refusal(status int, body []byte) error {
	var said struct{ Kind, Value string }
	why := strings.TrimSpace(string(body))
	if json.Unmarshal(body, &said) == nil && said.Kind != "" {
		why = said.Kind
		if said.Value != "" && said.Value != said.Kind {
			why += ": " + said.Value
		}
	}
	if runes := []rune(why); len(runes) > maxTold {
		why = string(runes[:maxTold]) + "…"
	}
	if why == "" {
		why = "it says nothing more"
	}
	kind, hint := fault.Unavailable, "another machine of group "+c.Group+" may have the slot; the server's own log says more"
	if !passes(status) {
		kind, hint = fault.Refused, "see the settings fleetlock, fleetlock-group and fleetlock-id, and the server's configuration"
	}
	return fault.New(kind, "the fleet's lock at %s refuses (HTTP %d, for %s of group %s): %s", c.URL, status, c.ID, c.Group, why).WithHint("%s", hint)
}

// passes reports whether the same request may be granted later: a request that is wrong
// stays wrong.
func passes(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// ID is the ID of a machine in the fleet, unless it is given another: as Zincati has it, which
// is sd_id128_get_machine_app_specific(3) of its machine ID. That stays secret.
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

// CheckURL is an error if a text is no URL of a server. Secrets in it would be told: there is
// no authentication in the protocol.
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

// CheckGroup is an error if a text cannot be a group.
func CheckGroup(text string) error {
	if !regexp.MustCompile(`^[a-zA-Z0-9.-]+$`).MatchString(text) {
		return fmt.Errorf("%q is not allowed; a group has letters, digits, points and dashes", text)
	}
	return nil
}

// CheckID is an error if a text cannot be a machine's ID.
func CheckID(text string) error {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return fmt.Errorf("%q is not allowed; an ID has no white space", text)
	}
	return nil
}
