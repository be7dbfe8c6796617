package source

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	"machine-pivot/internal/fault"
)

// certificate knows a registry that does not prove who it is. All of that is
// permanent: waiting makes no certificate trusted.
func (j judge) certificate(err error) *fault.Error {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired && invalid.Cert != nil {
		return j.outOfDate(err, invalid.Cert)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fault.New(fault.Refused, "%w", err).
			WithHint("put the CA's certificate, named *.crt, into %s or into the system's trust store", j.certsDir())
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return fault.New(fault.Refused, "%w", err).WithHint("use the name that is in the registry's certificate")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fault.New(fault.Refused, "%w", err)
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return fault.New(fault.Refused, "%w", err).
			WithHint("%s does not speak HTTPS; if that is meant to be, mark it insecure in registries.conf", j.ref.Host())
	}
	return nil
}

// outOfDate names this machine's clock: on a first boot it is the likelier culprit.
func (j judge) outOfDate(err error, cert *x509.Certificate) *fault.Error {
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	now, what, kind := time.Now(), "has expired", fault.Refused
	if now.Before(cert.NotBefore) {
		// A clock that was not set yet cures itself once a time server answers.
		what, kind = "is not yet valid", fault.Unavailable
	}
	text := "the certificate of %s %s: it is valid from %s to %s and this machine's clock says %s (%w)"
	return fault.New(kind, text, j.ref.Host(), what, stamp(cert.NotBefore), stamp(cert.NotAfter), stamp(now), err).
		WithHint("set this machine's clock (is a time server reachable?) or renew the certificate")
}
