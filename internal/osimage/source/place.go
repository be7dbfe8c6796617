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

// place is where an image may be read from: the place that its reference names,
// or a mirror of that.
//
// The library tries mirrors by itself, but reduces what they answered to text:
// a mirror that is restarting and an origin that nobody may reach would be a
// permanent failure, and a silent mirror would use up the time of all. So each
// place is its own attempt here, with the library's rules for which and in what
// order.
type place struct {
	ref   imageref.Reference // of the image there
	sys   *types.SystemContext
	judge judge
	err   error // why it must not be asked, if it must not
}

// Of a place the library shall read no registries.conf again: what that says is
// in the place already. There are no drop-ins beside the null device.
const (
	noRegistriesConf    = "/dev/null"
	noRegistriesConfDir = "/dev/null.d"
)

// places lists where an image may come from, in the order to try.
func (h *Host) places(ref imageref.Reference) ([]place, error) {
	sys := &types.SystemContext{DockerRegistryUserAgent: "pivot", ArchitectureChoice: h.Architecture}
	if root := h.path("/"); root != "/" {
		sys.RootForImplicitAbsolutePaths = root
	}
	if !ref.Remote() {
		at := h.local(ref)
		return []place{{ref: at, sys: sys, judge: judge{ref: at, root: h.path("/")}}}, nil
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
	places := make([]place, len(sources))
	for i, source := range sources {
		if places[i], err = h.registryPlace(sys, ref, source); err != nil {
			return nil, err
		}
	}
	if last := &places[len(places)-1]; own.Blocked {
		last.err = blocked(sys, own) // also where its location has another name
	}
	return places, nil
}

// local is a local image below the host's root, if it is there; the policy knows it
// by the name that it has on the host.
func (h *Host) local(ref imageref.Reference) imageref.Reference {
	if below := h.path(ref.Name()); filepath.IsAbs(ref.Name()) {
		if _, err := os.Stat(below); err == nil {
			return ref.At(below)
		}
	}
	return ref
}

// pullSources are the image's mirrors and then its own registry, as
// containers-registries.conf(5) has it, and that registry's entry there.
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

// registryPlace is one of an image's pull sources with all that is set for it.
func (h *Host) registryPlace(sys *types.SystemContext, ref imageref.Reference, source sysregistriesv2.PullSource) (place, error) {
	ref = ref.At(source.Reference.Name()) // mirrors change the name only
	credentials, secret, err := h.findSecret(sys, source.Reference)
	if err != nil {
		return place{}, fault.New(fault.Refused, "%w", err)
	}
	refusal, err := refusalOf(sys, source)
	if err != nil {
		return place{}, fault.New(fault.Refused, "cannot use the registries configuration: %w", err)
	}
	own := *sys
	own.SystemRegistriesConfPath, own.SystemRegistriesConfDirPath = noRegistriesConf, noRegistriesConfDir
	own.DockerAuthConfig = &credentials
	own.DockerInsecureSkipTLSVerify = types.NewOptionalBool(source.Endpoint.Insecure)
	judge := judge{ref: ref, secret: secret, root: h.path("/"), proxy: proxyFor(sys, ref.Host())}
	return place{ref: ref, sys: &own, judge: judge, err: refusal}, nil
}

// refusalOf is why a pull source must not be asked, or nil. A mirror of a
// blocked registry may be; a mirror that is itself blocked may not.
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

// failure is what a place answered that did not give what it should.
type failure struct {
	at  place
	err error
}

// noPlace says what each place answered that was asked, of all that there are. If
// the policy rejects the image, that is the end; else trying again can help if it
// can for one of them, whose hint is the one to follow, and otherwise that of the
// first place.
func noPlace(ref imageref.Reference, all int, failed []failure) error {
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

// decisive is the failure to act on.
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

// passedOver are notes of the places that were tried in vain.
func passedOver(places []place, failed []failure) []string {
	notes := make([]string, len(failed))
	for i, f := range failed {
		notes[i] = fmt.Sprintf("%s does not give the image, trying %s: %v", f.at.ref.Name(), places[i+1].ref.Name(), f.err)
	}
	return notes
}

// patiently bounds how long a registry may take for what is small. Who waits longer than
// a moment is told for whom, and until when.
func (h *Host) patiently(ctx context.Context, at place) (context.Context, context.CancelFunc) {
	if !at.ref.Remote() {
		return context.WithCancel(ctx)
	}
	until := time.Now().Add(h.patience())
	notice := time.AfterFunc(h.soon(), func() {
		h.log("waiting for %s, which has not answered for %s; it is given until %s", at.ref.Host(), h.soon(), until.Format("15:04:05"))
	})
	ctx, cancel := context.WithDeadlineCause(ctx, until, errSilent)
	return ctx, func() { notice.Stop(); cancel() }
}
