// Package osimage reads OS images: it resolves a reference to content, checks
// it against the host's signature policy and imports the ostree commit that it
// carries into a repository, every byte verified, without unpacking a container.
//
// Formats. A legacy "oscontainer" (machine-os-content) is an ordinary container
// image with an archive-mode repository at /srv/repo; its commit is named by the
// label com.coreos.ostree-commit or by the only ref. ostree-native containers
// carry it in layers of objects ("encapsulated"); those with further layers on
// top ("layered") are recognized and refused.
//
// Sources. Registries, by the containers image library, and local media (oci,
// oci-archive, dir, docker-archive), which never ask the network. Where the
// library looks for its configuration (registries.conf with mirrors, certs.d,
// registries.d) is its own documented default, below Puller.Root; pull secrets
// and the policy are looked up as Puller says.
//
// Faults. A layer's download that fails by a transient fault is tried again with
// backoff, from the byte where it stopped (Retry). Manifest and config are not: an
// error says by its kind whether trying the whole again can help. The library
// itself waits up to five times on a registry's "429 Too Many Requests", as long as
// that says, and resumes a broken download once.
package osimage

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"machine-pivot/osimage/imageref"
)

// DefaultPatience is how long a registry may be silent before it counts as unavailable.
const DefaultPatience = 2 * time.Minute

// Puller reads images with a host's configuration. Paths in the environment
// (such as CONTAINERS_REGISTRIES_CONF) and those that configuration files name
// themselves (a policy's keyPath, a file: lookaside) are taken as they stand,
// not below Root.
type Puller struct {
	Root     string               // the host's root directory, for default paths; "" is "/"
	AuthFile string               // the pull secret; "" looks in the known places, see PullSecrets
	Patience time.Duration        // how long a registry may be silent; 0 is DefaultPatience
	Retry    Retry                // of a layer's download; the zero value is DefaultRetry
	Log      func(message string) // notes for people, by any goroutine; may be nil
	Progress func(Progress)       // called while importing, by one goroutine at a time; may be nil
}

// Progress is how far an import is.
type Progress struct {
	FetchedBytes, TotalBytes int64 // of compressed layers; what is fetched again counts in both
	Objects                  int   // ostree objects seen
	Done                     bool  // all is imported
}

// Resolve looks an image up: manifest and config, of the platform that this
// program runs on. The result is pinned to the content, which the host's
// signature policy accepts.
func (p *Puller) Resolve(ctx context.Context, ref imageref.Reference) (Image, error) {
	opened, err := p.open(ctx, ref)
	if err != nil {
		return Image{}, fmt.Errorf("cannot resolve image %s: %w", ref, err)
	}
	defer opened.Close()
	for _, note := range opened.notes {
		p.log("%s", note)
	}
	return opened.Image, nil
}

func (p *Puller) log(format string, args ...any) {
	if p.Log != nil {
		p.Log(fmt.Sprintf(format, args...))
	}
}

func (p *Puller) patience() time.Duration {
	if p.Patience > 0 {
		return p.Patience
	}
	return DefaultPatience
}

func (p *Puller) retry() Retry {
	if p.Retry.Tries > 0 {
		return p.Retry
	}
	return DefaultRetry()
}

// path is a path of the host.
func (p *Puller) path(name string) string { return filepath.Join(cmp.Or(p.Root, "/"), name) }
