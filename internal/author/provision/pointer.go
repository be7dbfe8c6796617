// Package pointer writes the small Ignition config that points to a config server. It is for a machine's user
// data, which is too small for a whole config.
package provision

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
)

// withHeaders is the first version in which a config can be fetched with headers of HTTP.
const withHeaders = "3.1.0"

// Pointer says where a machine's Ignition finds its config.
type Pointer struct {
	URL   string // of a config server, as https://HOST:PORT/config/ROLE
	CA    []byte // certificates of the server's authorities in PEM; nil: those of the boot image
	Token string // that the server asks for; none: ""
}

// Config returns the config, of one of authored.IgnitionVersions, that merges the one at the pointer's URL. Nothing is in it but what
// was parsed and is written anew: user data can be read by many.
func (p Pointer) Config(version string) ([]byte, error) {
	at, err := p.parsed()
	switch {
	case err != nil:
		return nil, err
	case at.Scheme == "http" && (p.Token != "" || p.CA != nil):
		return nil, fault.New(fault.Usage, "cannot point to %q: a token, and an authority, need https", p.URL)
	case p.Token != "" && version < withHeaders: // no number has more than one digit
		return nil, fault.New(fault.Usage, "cannot write a pointer of version %s: Ignition sends headers, and so a token, from version %s on", version, withHeaders)
	}
	config := ignition.Empty()
	merged := ignition.Resource{Source: &p.URL}
	if p.Token != "" {
		merged.HTTPHeaders = append(merged.HTTPHeaders, ignition.HTTPHeader{Name: "Authorization", Value: new("Bearer " + p.Token)})
	}
	config.Ignition.Config.Merge = []ignition.Resource{merged}
	if p.CA != nil {
		authorities, err := certificates(p.CA)
		if err != nil {
			return nil, fault.New(fault.BadInput, "cannot use the certificate authority: %w", err).WithHint("give a file of certificates in PEM only; openssl x509 -in FILE prints one so")
		}
		config.Ignition.Security.TLS.CertificateAuthorities = []ignition.Resource{ignition.Inline(authorities)}
	}
	raw, report := authored.WriteIgnition(config, version)
	return raw, report.Err("a pointer of version " + version)
}

// Role returns the role, or the pool, of the config at the pointer's URL, if Config accepts that.
func (p Pointer) Role() string { return path.Base(p.URL) }

// parsed returns the URL, which has no more parts than scheme, host and path, each in its plain form: then what is
// checked here is what a machine asks for.
func (p Pointer) parsed() (*url.URL, error) {
	at, err := url.Parse(p.URL)
	if err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Scheme+"://"+at.Host+at.Path != p.URL || !isHost(at) {
		return nil, fault.New(fault.Usage, "cannot point to %q: it is no URL as https://HOST:22623/config/ROLE", p.URL)
	}
	if dir, role := path.Split(at.Path); dir != "/config/" || !roleName.MatchString(role) {
		return nil, fault.New(fault.Usage, "cannot point to %q: config servers have configs at /config/ROLE", p.URL)
	}
	return at, nil
}

// roleName matches the name of a role or a pool, and hostName that of a host.
var (
	roleName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*\.?$`)
	numbered = regexp.MustCompile(`(^|\.)[0-9]+\.?$`) // ends as an IPv4 address does, and no name does
)

// isHost reports whether a machine can connect to the host and the port of a URL.
func isHost(at *url.URL) bool {
	host, port := at.Hostname(), at.Port()
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) || at.Host != host && port == "" && !strings.HasPrefix(at.Host, "[") {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err == nil || len(host) <= 253 && hostName.MatchString(host) && !numbered.MatchString(host) && !strings.HasPrefix(at.Host, "[")
}

// certificates returns only the certificates of a file. Whatever else is in it is refused, as a private key, which must
// not stay in doubt about where it went.
func certificates(bundle []byte) ([]byte, error) {
	var all bytes.Buffer
	for n := 1; ; n++ {
		block, rest := pem.Decode(bundle)
		if block == nil {
			break
		}
		bundle = rest
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("its block %d is of type %s, and no certificate", n, block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("its block %d: %w", n, err)
		}
		if err := pem.Encode(&all, &pem.Block{Type: block.Type, Bytes: certificate.Raw}); err != nil {
			return nil, err
		}
	}
	if all.Len() == 0 {
		return nil, errors.New("it is no certificate in PEM")
	}
	return all.Bytes(), nil
}
