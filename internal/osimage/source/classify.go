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

// errSilent is the cause of giving up on a registry that says nothing.
var errSilent = errors.New("the registry is silent")

// judge classifies the failures of reading an image from one place.
type judge struct {
	ref    imageref.Reference // of the image there
	secret secret
	root   string
	proxy  string // HOST:PORT of the proxy on the way, or ""
}

// fallback is the kind of a failure to open that nothing else is known of: of a
// registry it is its configuration, of a local image its files.
func (j judge) fallback() fault.Kind {
	if j.ref.Remote() {
		return fault.Refused
	}
	return fault.BadInput
}

// classify gives an error its kind and a hint, if it has none yet. A context
// that ended explains whatever followed.
func (j judge) classify(ctx context.Context, err error, otherwise fault.Kind) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	err = redacted{err}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	for _, known := range []func(error) *fault.Error{imagefault.CannotWrite, j.certificate, j.status, j.proxyAnswer, j.redirect, j.network} {
		if f := known(err); f != nil {
			return f
		}
	}
	f := fault.New(otherwise, "%w", err)
	if !j.ref.Remote() {
		return f.WithHint("is %s there, and whole? else copy the image anew, for example with skopeo copy", j.ref.Name())
	}
	return f.WithHint("is it %s that answers, and not a proxy or a login page in its place?", j.ref.Host())
}

// redirect knows an answer that sends its client where none can go: a file, or any
// other address that is not the web's. It is the registry's configuration.
func (j judge) redirect(err error) *fault.Error {
	e, ok := errors.AsType[*url.Error](err)
	if !ok || !j.ref.Remote() {
		return nil
	}
	to, perr := url.Parse(e.URL)
	if perr != nil || slices.Contains([]string{"", "http", "https"}, to.Scheme) { // "": relative to the registry
		return nil
	}
	return fault.New(fault.Refused, "%w", err).
		WithHint("%s sends its clients to an address that is not http or https; correct its configuration, or that of the proxy in front of it", j.ref.Host())
}

// network knows what passes by itself: no connection, no name, a connection cut.
func (j judge) network(err error) *fault.Error {
	if !j.ref.Remote() || !isNetwork(err) {
		return nil
	}
	return fault.New(fault.Unavailable, "%w", err).WithHint("%s", j.reach())
}

func isNetwork(err error) bool {
	if errors.Is(err, http.ErrSchemeMismatch) { // HTTP where HTTPS should be
		return false
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok { // an errno claims to be a net.Error
		return false
	}
	if _, ok := errors.AsType[net.Error](err); ok { // also net.OpError, net.DNSError, url.Error
		return true
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return true
	}
	for _, passing := range []error{
		errSilent, context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
		unix.ECONNRESET, unix.ECONNREFUSED, unix.ECONNABORTED, unix.EPIPE,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// certsDir is where the library looks for a registry's CA certificates.
func (j judge) certsDir() string { return j.path("/etc/containers/certs.d/" + j.ref.Host()) }

// path is a path of the host.
func (j judge) path(name string) string { return filepath.Join(j.root, name) }
