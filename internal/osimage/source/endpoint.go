package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
)

// endpoint is where an image may be read from: the registry or path that its reference
// names, or a mirror of that.
//
// The library tries mirrors by itself, but returns their answers as text only: a mirror
// that is restarting, before a registry that refuses, would be a permanent failure, and
// a silent mirror would use up the time for all. So each endpoint is tried here, by the
// library's rules for which there are and in what order.
type endpoint struct {
	ref        imageref.Reference // of the image at this endpoint
	sys        *types.SystemContext
	classifier classifier
	err        error // why this endpoint must not be asked; nil if it may be
}

// What registries.conf says is in the endpoint already, so the library must not apply it
// again: it gets an empty file, and a directory that does not exist.
const (
	noRegistriesConf    = "/dev/null"
	noRegistriesConfDir = "/dev/null.d"
)

// endpoints lists where an image may come from, in the order to try.
func (h *Host) endpoints(ref imageref.Reference) ([]endpoint, error) {
	sys := &types.SystemContext{DockerRegistryUserAgent: "pivot", ArchitectureChoice: h.Architecture}
	if root := h.path("/"); root != "/" {
		sys.RootForImplicitAbsolutePaths = root
	}
	if !ref.Remote() {
		at := h.local(ref)
		return []endpoint{{ref: at, sys: sys, classifier: classifier{ref: at, root: h.path("/")}}}, nil
	}
	proxies, err := h.proxies()
	if err != nil {
		return nil, err
	}
	sys.DockerProxy = proxies
	sources, own, err := pullSources(sys, ref)
	if err != nil {
		return nil, fault.New(fault.Refused, "cannot use the registries configuration: %w", err)
	}
	all := make([]endpoint, len(sources))
	for i, source := range sources {
		if all[i], err = h.registryEndpoint(sys, ref, source); err != nil {
			return nil, err
		}
	}
	if last := &all[len(all)-1]; own.Blocked {
		last.err = blocked(sys, own) // refusalOf asks by the location, which may have another name
	}
	return all, nil
}

// local is the reference to a local image below the host's root, if it is there. The
// signature policy is asked for the name that the image has on the host.
func (h *Host) local(ref imageref.Reference) imageref.Reference {
	if below := h.path(ref.Name()); filepath.IsAbs(ref.Name()) {
		if _, err := os.Stat(below); err == nil {
			return ref.At(below)
		}
	}
	return ref
}

// pullSources are the image's mirrors and after them its own registry, by
// containers-registries.conf(5); own is that registry's entry there.
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
	return sources, own, err
}

// registryEndpoint is the endpoint for one of an image's pull sources.
func (h *Host) registryEndpoint(sys *types.SystemContext, ref imageref.Reference, source sysregistriesv2.PullSource) (endpoint, error) {
	ref = ref.At(source.Reference.Name()) // mirrors change the name only
	credentials, secret, err := h.findSecret(sys, source.Reference)
	if err != nil {
		return endpoint{}, fault.New(fault.Refused, "%w", err)
	}
	refusal, err := refusalOf(sys, source)
	if err != nil {
		return endpoint{}, fault.New(fault.Refused, "cannot use the registries configuration: %w", err)
	}
	own := *sys
	own.SystemRegistriesConfPath, own.SystemRegistriesConfDirPath = noRegistriesConf, noRegistriesConfDir
	own.DockerAuthConfig = &credentials
	own.DockerInsecureSkipTLSVerify = types.NewOptionalBool(source.Endpoint.Insecure)
	c := classifier{ref: ref, secret: secret, root: h.path("/"), proxy: proxyFor(sys, ref.Host())}
	return endpoint{ref: ref, sys: &own, classifier: c, err: refusal}, nil
}

// refusalOf is why a pull source must not be asked, or nil. A mirror of a blocked
// registry may be asked, a mirror that is blocked itself may not.
func refusalOf(sys *types.SystemContext, source sysregistriesv2.PullSource) (refusal, err error) {
	if source.Endpoint.NamespaceProxy != "" {
		return fault.New(fault.Refused, "its namespace-proxy in registries.conf is not implemented"), nil
	}
	registry, err := sysregistriesv2.FindRegistry(sys, source.Reference.Name())
	if err != nil || registry == nil || !registry.Blocked {
		return nil, err
	}
	return blocked(sys, registry), nil
}

func blocked(sys *types.SystemContext, registry *sysregistriesv2.Registry) error {
	return fault.New(fault.Refused, "registry %s is blocked in registries.conf", registry.Prefix).
		WithHint("allow it, or give it a mirror, in one of %s", sysregistriesv2.ConfigurationSourceDescription(sys))
}

// failure is why an endpoint did not give the image or the layer.
type failure struct {
	at  endpoint
	err error
}

// allFailed is the error of all endpoints that were asked; all is how many there are.
// Kind and hint are those of the decisive failure.
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

// decisive is the failure that says whether trying again can help: a rejection by the
// signature policy, or else the first transient failure, or else the first endpoint's.
func decisive(failed []failure) error {
	if last := failed[len(failed)-1].err; isRejection(last) {
		return last
	}
	for _, f := range failed {
		if fault.KindOf(f.err).Transient() {
			return f.err
		}
	}
	return failed[0].err
}

// passedOver are notes about the endpoints that did not give the image.
func passedOver(endpoints []endpoint, failed []failure) []string {
	notes := make([]string, len(failed))
	for i, f := range failed {
		notes[i] = fmt.Sprintf("%s does not give the image, trying %s: %v", f.at.ref.Name(), endpoints[i+1].ref.Name(), f.err)
	}
	return notes
}

// patiently bounds how long a registry may take for what is small. Who waits longer than
// a moment is told for whom, and until when.
func (h *Host) patiently(ctx context.Context, at endpoint) (context.Context, context.CancelFunc) {
	if !at.ref.Remote() {
		return context.WithCancel(ctx)
	}
	until := time.Now().Add(h.maxSilence())
	notice := time.AfterFunc(h.soon(), func() {
		h.note("waiting for %s, which has not answered for %s; it is given until %s", at.ref.Host(), h.soon(), until.Format("15:04:05"))
	})
	ctx, cancel := context.WithDeadlineCause(ctx, until, errSilent)
	return ctx, func() { notice.Stop(); cancel() }
}
