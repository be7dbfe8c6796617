package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/docker/distribution/registry/api/errcode"
	v2 "github.com/docker/distribution/registry/api/v2"
	"go.podman.io/image/v5/docker"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
)

func TestClassify(t *testing.T) {
	const otherwise = fault.Usage // a kind that classify itself never returns
	get := func(err error) error { return &url.Error{Op: "Get", URL: "https://q.io/v2/", Err: err} }
	for _, c := range []struct {
		err  error
		want fault.Kind
		hint string
	}{
		{errors.New("else"), otherwise, ""},
		{fault.New(fault.Internal, "known"), fault.Internal, ""},
		{&fs.PathError{Op: "write", Err: unix.ENOSPC}, fault.CannotWrite, "free space"},
		{&fs.PathError{Op: "open", Err: unix.EROFS}, fault.CannotWrite, "read-write"},
		{&fs.PathError{Op: "open", Err: unix.EACCES}, otherwise, ""},
		{get(&net.OpError{Op: "dial", Err: unix.ECONNREFUSED}), fault.Unavailable, "reach q.io"},
		{get(&net.DNSError{Err: "no such host", IsNotFound: true}), fault.Unavailable, "DNS"},
		{get(io.EOF), fault.Unavailable, "reach q.io"},
		{get(http.ErrSchemeMismatch), fault.Refused, "does not speak HTTPS"},
		{get(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), fault.Refused, "/r/etc/containers/certs.d/q.io"},
		{get(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "q.io"}}), fault.Refused, "name"},
		{get(&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}}), fault.Refused, ""},
		{fmt.Errorf("body: %w", io.ErrUnexpectedEOF), fault.Unavailable, "reach q.io"},
		{unix.ECONNRESET, fault.Unavailable, "reach q.io"},
		{context.DeadlineExceeded, fault.Unavailable, "reach q.io"},
		{docker.ErrTooManyRequests, fault.Unavailable, "later"},
		{docker.UnexpectedHTTPStatusError{StatusCode: 502}, fault.Unavailable, "later"},
		{docker.UnexpectedHTTPStatusError{StatusCode: 302}, fault.Refused, ""},
		{docker.ErrUnauthorizedForCredentials{Err: errors.New("no")}, fault.Refused, "no credentials for q.io in any of /s"},
		{errcode.ErrorCodeTooManyRequests.WithMessage("x"), fault.Unavailable, "later"},
		{errcode.ErrorCodeUnauthorized.WithMessage("x"), fault.Refused, "no credentials"},
		{errcode.ErrorCodeDenied.WithMessage("x"), fault.Refused, "no credentials"},
		{v2.ErrorCodeManifestUnknown.WithMessage("x"), fault.Refused, "is the tag right? skopeo list-tags docker://q.io/a/b shows"},
		{v2.ErrorCodeNameUnknown.WithMessage("x"), fault.Refused, "for want of credentials: no credentials for q.io"},
		{v2.ErrorCodeBlobUnknown.WithMessage("x"), fault.Refused, "q.io does not have all parts of the image: push it again"},
		{docker.UnexpectedHTTPStatusError{StatusCode: 404}, fault.Refused, "for want of credentials"},
		{errcode.ErrorCodeUnknown.WithMessage("x"), fault.Refused, ""}, // from a 4xx response, although its descriptor says 500
		{errors.New(`blob: "StatusCode: 429, "`), otherwise, ""},       // text from the registry is not a status
	} {
		j := classifier{ref: mustParse(t, "q.io/a/b"), secret: secret{looked: []string{"/s"}}, root: "/r"}
		err := j.classify(t.Context(), fmt.Errorf("wrapped: %w", c.err), otherwise)
		if fault.KindOf(err) != c.want || !strings.Contains(fault.HintOf(err), c.hint) {
			t.Errorf("%v: kind %d, want %d; hint %q, want %q", c.err, fault.KindOf(err), c.want, fault.HintOf(err), c.hint)
		}
	}
}

func TestClassifyLocal(t *testing.T) {
	j := classifier{ref: mustParse(t, "oci:/d")}
	for _, err := range []error{io.ErrUnexpectedEOF, unix.EIO, fs.ErrNotExist} {
		if err := j.classify(t.Context(), err, fault.BadInput); fault.KindOf(err) != fault.BadInput {
			t.Errorf("%v of a local image is of kind %d", err, fault.KindOf(err))
		}
	}
}

func mustParse(t *testing.T, s string) imageref.Reference {
	t.Helper()
	ref, err := imageref.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
