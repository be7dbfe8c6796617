package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/osimage/imageref"
)

// errSilent is the cancellation cause for a registry that sends nothing.
var errSilent = errors.New("the registry is silent")

// classifier adds a kind and a hint to errors of reading an image from one endpoint.
type classifier struct {
	ref    imageref.Reference // of the image at the endpoint
	secret secret
	root   string // of the host
	proxy  string // HOST:PORT of the proxy on the way, or ""
	part   bool   // the errors are of reading a part of the image: a layer, its config, or a platform's manifest
}

// ofPart returns the classifier for errors of reading a part of the image.
func (c classifier) ofPart() classifier {
	c.part = true
	return c
}

// fallback returns the kind of an error of opening an image that no method here recognizes. For
// a registry it is Refused (a wrong configuration), for a local image BadInput (wrong files).
func (c classifier) fallback() fault.Kind {
	if c.ref.Remote() {
		return fault.Refused
	}
	return fault.BadInput
}

// classify adds a kind and a hint to an error, unless it has a kind already. otherwise is the
// kind of an error that no method here recognizes. If the context has ended, its cause comes
// first in the error text, because it explains the error.
func (c classifier) classify(ctx context.Context, err error, otherwise fault.Kind) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	err = redacted{err, serverOf(c.ref.Host())}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	for _, known := range []func(error) *fault.Error{imagefault.CannotWrite, c.certificate, c.status, c.proxyAnswer, c.redirect, c.network} {
		if f := known(err); f != nil {
			return f
		}
	}
	f := fault.New(otherwise, "%w", err)
	if !c.ref.Remote() {
		return f.WithHint("check that %s exists and is complete, or copy the image again, for example with skopeo copy", c.ref.Name())
	}
	return f.WithHint("is it %s that answers, and not a proxy or a login page in its place?", c.ref.Host())
}

// redirect recognizes a redirect to a URL that is neither http nor https, such as file:. Only a
// change of the registry's configuration can help, so it is permanent.
func (c classifier) redirect(err error) *fault.Error {
	e, ok := errors.AsType[*url.Error](err)
	if !ok || !c.ref.Remote() {
		return nil
	}
	to, perr := url.Parse(e.URL)
	if perr != nil || slices.Contains([]string{"", "http", "https"}, to.Scheme) { // "": relative to the registry
		return nil
	}
	return fault.New(fault.Refused, "%w", err).
		WithHint("%s sends its clients to an address that is not http or https; correct its configuration, or that of its proxy", c.ref.Host())
}

// network recognizes transient failures of the network: no connection, a failed name lookup,
// a broken connection.
func (c classifier) network(err error) *fault.Error {
	if !c.ref.Remote() || !isNetwork(err) {
		return nil
	}
	return fault.New(fault.Unavailable, "%w", err).WithHint("%s", c.reachHint())
}

func isNetwork(err error) bool {
	if errors.Is(err, http.ErrSchemeMismatch) { // HTTP instead of HTTPS
		return false
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok { // its errno implements net.Error
		return false
	}
	if _, ok := errors.AsType[net.Error](err); ok { // also net.OpError, net.DNSError, url.Error
		return true
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return true
	}
	passing := []error{
		errSilent, context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
		unix.ECONNRESET, unix.ECONNREFUSED, unix.ECONNABORTED, unix.EPIPE,
	}
	return slices.ContainsFunc(passing, func(is error) bool { return errors.Is(err, is) })
}

// certsDir returns the directory in which the library looks for the registry's CA certificates.
func (c classifier) certsDir() string { return c.shown("/etc/containers/certs.d/" + c.ref.Host()) }

// shown returns the name of one of the host's files for messages.
func (c classifier) shown(name string) string { return filepath.Join(c.root, name) }
