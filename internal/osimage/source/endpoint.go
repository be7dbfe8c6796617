package source

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/osimage/imageref"
)

// endpoint is a place that an image may be read from: the registry or path that its reference
// names, or a mirror.
//
// The library can try mirrors itself, but returns their errors as text only. A mirror that is
// restarting, followed by a registry that refuses, would be a permanent failure, and a silent
// mirror would use up the time for all endpoints. So this package tries each endpoint itself;
// the library determines the endpoints and their order.
type endpoint struct {
	ref        imageref.Reference // of the image at this endpoint
	asked      imageref.Reference // the name that the signature policy is about
	sys        *types.SystemContext
	registry   *registry // nil for a local image
	classifier classifier
	err        error // why this endpoint must not be used; nil if it may be used
}

// The endpoints already reflect registries.conf, so the library must not apply it again: it
// gets an empty file and a directory that does not exist.
const (
	noRegistriesConf    = "/dev/null"
	noRegistriesConfDir = "/dev/null.d"
)

// endpoints returns the endpoints of an image in the order in which to try them.
func (h *Host) endpoints(ref imageref.Reference) ([]endpoint, error) {
	if !ref.Remote() {
		at := h.local(ref)
		sys := &types.SystemContext{ArchitectureChoice: h.Architecture}
		return []endpoint{{ref: at, sys: sys, classifier: classifier{ref: at, root: h.root()}}}, nil
	}
	sys, err := h.context()
	if err != nil {
		return nil, unreadable("the registries configuration", err, namedInError)
	}
	proxies, err := h.proxies()
	if err != nil {
		return nil, err
	}
	sys.DockerProxy = proxies
	sources, own, err := pullSources(sys, ref)
	if err != nil {
		return nil, unreadable("the registries configuration", err, namedInError)
	}
	all := make([]endpoint, len(sources))
	for i, source := range sources {
		if all[i], err = h.registryEndpoint(sys, ref, source); err != nil {
			return nil, err
		}
	}
	if last := &all[len(all)-1]; own.Blocked {
		last.err = blocked(sys, own) // refusalOf looks up the location, which may have another name
	}
	return all, nil
}

// local returns the reference to a local image below the host's root, or ref if there is no
// such image. The signature policy is applied to the name that the image has on the host.
func (h *Host) local(ref imageref.Reference) imageref.Reference {
	if !filepath.IsAbs(ref.Name()) {
		return ref
	}
	below, err := h.path(ref.Name())
	if err != nil {
		return ref
	}
	if _, err := os.Stat(below); err != nil {
		return ref
	}
	return ref.At(below)
}

// pullSources returns the image's mirrors followed by its own registry, according to
// containers-registries.conf(5), and that registry's entry there.
func pullSources(sys *types.SystemContext, ref imageref.Reference) ([]sysregistriesv2.PullSource, *sysregistriesv2.Registry, error) {
	named, err := namedRef(ref)
	if err != nil {
		return nil, nil, err
	}
	sysregistriesv2.InvalidateCache() // the files may have been corrected since the last try
	own, err := sysregistriesv2.FindRegistry(sys, named.Name())
	if err != nil {
		return nil, nil, err
	}
	if own == nil {
		return []sysregistriesv2.PullSource{{Reference: named}}, &sysregistriesv2.Registry{}, nil
	}
	sources, err := own.PullSourcesFromReference(named)
	for _, at := range append(own.Mirrors, own.Endpoint) {
		if err != nil && strings.HasPrefix(at.Location, "[") { // the library's error does not name it
			err = fmt.Errorf("location %q: the library takes no IPv6 address for a registry, only a name: %w", at.Location, err)
		}
	}
	return sources, own, err
}

// registryEndpoint returns the endpoint for one of an image's pull sources.
func (h *Host) registryEndpoint(sys *types.SystemContext, ref imageref.Reference, source sysregistriesv2.PullSource) (endpoint, error) {
	ref = ref.At(source.Reference.Name()) // mirrors change the name only
	credentials, secret, err := h.findSecret(sys, source.Reference)
	if err != nil {
		return endpoint{}, err
	}
	refusal, err := refusalOf(sys, source)
	if err != nil {
		return endpoint{}, unreadable("the registries configuration", err, namedInError)
	}
	signatures, err := signaturesOf(sys, ref)
	if err != nil {
		return endpoint{}, unreadable("where signatures are kept", err, namedInError)
	}
	own := *sys
	own.SystemRegistriesConfPath, own.SystemRegistriesConfDirPath = noRegistriesConf, noRegistriesConfDir
	own.DockerAuthConfig = &credentials
	own.DockerInsecureSkipTLSVerify = types.NewOptionalBool(source.Endpoint.Insecure)
	if secret.found {
		own.DockerProxy = newGuarded(sys, ref.Host(), source.Endpoint.Insecure, signatures).proxyFor
	}
	certificates, err := h.certificates(ref.Host())
	if err != nil {
		return endpoint{}, unreadable("the certificates for "+ref.Host(), err, namedInError)
	}
	registry := newRegistry(&own, source.Reference, certificates)
	registry.pause = h.retryPolicy().Pause
	c := classifier{ref: ref, secret: secret, root: h.root(), proxy: proxyFor(sys, ref.Host())}
	return endpoint{ref: ref, sys: &own, registry: registry, classifier: c, err: refusal}, nil
}

// signaturesOf returns the address at which the signatures of an image are kept, as registries.d says.
func signaturesOf(sys *types.SystemContext, ref imageref.Reference) (*url.URL, error) {
	library, err := libraryRef(ref)
	if err != nil {
		return nil, err
	}
	return docker.SignatureStorageBaseURL(sys, library, false)
}

// refusalOf returns the reason why a pull source must not be used, or nil. A mirror of a
// blocked registry may be used, unless the mirror itself is blocked.
func refusalOf(sys *types.SystemContext, source sysregistriesv2.PullSource) (refusal, err error) {
	if source.Endpoint.NamespaceProxy != "" {
		return fault.New(fault.Refused, "its namespace-proxy in registries.conf is not implemented").
			WithHint("name the mirror by prefix and location in registries.conf, without namespace-proxy"), nil
	}
	registry, err := sysregistriesv2.FindRegistry(sys, source.Reference.Name())
	if err != nil || registry == nil || !registry.Blocked {
		return nil, err
	}
	return blocked(sys, registry), nil
}

func blocked(sys *types.SystemContext, registry *sysregistriesv2.Registry) error {
	described := *sys
	described.SystemRegistriesConfPath = "" // it may be behind a link, which need not be known to change the file
	return fault.New(fault.Refused, "registry %s is blocked in registries.conf", registry.Prefix).
		WithHint("allow it, or give it a mirror, in one of %s", sysregistriesv2.ConfigurationSourceDescription(&described))
}

// failure is the error of an endpoint when it was tried for an image or a layer.
type failure struct {
	at  endpoint
	err error
}

// allFailed combines the errors of all endpoints that were tried; all is the number of
// endpoints. Kind and hint are those of the decisive failure.
func allFailed(ref imageref.Reference, all int, failed []failure) error {
	if all == 1 && failed[0].at.ref == ref {
		return failed[0].err
	}
	lines := make([]error, len(failed))
	for i, f := range failed {
		lines[i] = fmt.Errorf("  %s: %w", f.at.ref.Name(), f.err)
	}
	decisive := decisive(failed)
	return fault.New(fault.KindOf(decisive), "tried %d of the %d places it may come from:\n%w", len(failed), all, errors.Join(lines...)).
		WithHint("%s", fault.HintOf(decisive))
}

// decisive returns the failure that determines whether a retry can help: a final one (imagefault.Final), such as a
// rejection by the signature policy, else the first transient, else the first.
func decisive(failed []failure) error {
	if last := failed[len(failed)-1].err; imagefault.IsFinal(last) {
		return last
	}
	for _, f := range failed {
		if fault.KindOf(f.err).Transient() {
			return f.err
		}
	}
	return failed[0].err
}

// failureNotes returns notes about the endpoints that failed.
func failureNotes(endpoints []endpoint, failed []failure) []string {
	notes := make([]string, len(failed))
	for i, f := range failed {
		notes[i] = fmt.Sprintf("%s does not give the image, trying %s: %v", f.at.ref.Name(), endpoints[i+1].ref.Name(), f.err)
	}
	return notes
}

// withDeadline bounds how long a registry may take to open an image, which transfers little
// data. After noticeDelay it logs which registry is being waited for, and until when. Local
// images have no deadline.
func (h *Host) withDeadline(ctx context.Context, at endpoint) (context.Context, context.CancelFunc) {
	if !at.ref.Remote() {
		return context.WithCancel(ctx)
	}
	until := time.Now().Add(h.maxSilence())
	notice := time.AfterFunc(h.noticeDelay(), func() {
		h.note("waiting for %s, which has not answered for %s; it is given until %s", at.ref.Host(), h.noticeDelay(), until.Format("15:04:05"))
	})
	ctx, cancel := context.WithDeadlineCause(ctx, until, errSilent)
	return ctx, func() { notice.Stop(); cancel() }
}
