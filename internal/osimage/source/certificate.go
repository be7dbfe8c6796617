package source

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	"machine-pivot/internal/fault"
)

// certificate recognizes a registry with a certificate that cannot be verified. This is permanent, except for a
// certificate that is not valid yet.
func (c classifier) certificate(err error) *fault.Error {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired && invalid.Cert != nil {
		return c.outOfDate(err, invalid.Cert)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fault.New(fault.Refused, "%w", err).
			WithHint("put the CA's certificate, named *.crt, into %s or into the system's trust store", c.certsDir())
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return fault.New(fault.Refused, "%w", err).WithHint("name the registry in IMAGE or osImageURL as its certificate does")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fault.New(fault.Refused, "%w", err)
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return fault.New(fault.Refused, "%w", err).
			WithHint("%s does not speak HTTPS; if that is meant to be, mark it insecure in registries.conf", c.ref.Host())
	}
	return nil
}

// outOfDate returns the error for a certificate that is not valid now. It names this machine's
// time, because on a first boot a wrong clock is more likely than a wrong certificate.
func (c classifier) outOfDate(err error, cert *x509.Certificate) *fault.Error {
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	now, what, kind := time.Now(), "has expired", fault.Refused
	if now.Before(cert.NotBefore) {
		// Transient: a time server may still set the clock.
		what, kind = "is not yet valid", fault.Unavailable
	}
	text := "the certificate of %s %s: it is valid from %s to %s and this machine's clock says %s (%w)"
	return fault.New(kind, text, c.ref.Host(), what, stamp(cert.NotBefore), stamp(cert.NotAfter), stamp(now), err).
		WithHint("set this machine's clock (see timedatectl: is a time server reachable?) or renew the certificate")
}
