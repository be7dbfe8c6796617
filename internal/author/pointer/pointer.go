// Package pointer writes the small Ignition config that points to a config server. It is for a machine's user
// data, which is too small for a whole config.
package pointer

import (
	"encoding/pem"
	"net/url"
	"path"

	"machine-pivot/internal/author/legacy"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
)

// withHeaders is the first version in which a config can be fetched with headers of HTTP.
const withHeaders = "3.1.0"

// Pointer says where a machine's Ignition finds its config.
type Pointer struct {
	URL   string // of a config server, as https://HOST:PORT/config/ROLE
	CA    []byte // certificates of the server's authorities in PEM; none: those of the boot image
	Token string // that the server asks for; none: ""
}

// Config returns the config, of one of legacy.Versions, that merges the one at the pointer's URL.
func (p Pointer) Config(version string) ([]byte, error) {
	at, err := url.Parse(p.URL)
	switch {
	case err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Host == "" || at.User != nil || at.Fragment != "":
		return nil, fault.New(fault.Usage, "cannot point to %q: it is no URL as https://HOST:22623/config/ROLE", p.URL)
	case path.Clean(at.Path) != at.Path || path.Dir(at.Path) != "/config":
		return nil, fault.New(fault.Usage, "cannot point to %q: config servers have configs at /config/ROLE", p.URL)
	case at.Scheme == "http" && (p.Token != "" || len(p.CA) > 0):
		return nil, fault.New(fault.Usage, "cannot point to %q: a token, and an authority, need https", p.URL)
	case p.Token != "" && version < withHeaders: // no number has more than one digit
		return nil, fault.New(fault.Usage, "cannot write a pointer of version %s: Ignition sends headers, and so a token, from version %s on", version, withHeaders)
	}
	config := ignition.Empty()
	merged := ignition.Resource{Source: &p.URL}
	if p.Token != "" {
		value := "Bearer " + p.Token
		merged.HTTPHeaders = append(merged.HTTPHeaders, ignition.HTTPHeader{Name: "Authorization", Value: &value})
	}
	config.Ignition.Config.Merge = []ignition.Resource{merged}
	if len(p.CA) > 0 {
		if block, _ := pem.Decode(p.CA); block == nil || block.Type != "CERTIFICATE" {
			return nil, fault.New(fault.BadInput, "cannot use the certificate authority: it is no certificate in PEM").WithHint("begin it with -----BEGIN CERTIFICATE-----; openssl x509 -inform der -in FILE prints one so")
		}
		config.Ignition.Security.TLS.CertificateAuthorities = []ignition.Resource{ignition.Inline(p.CA)}
	}
	raw, report := legacy.Down(config, version)
	return raw, report.Err("a pointer of version " + version)
}
