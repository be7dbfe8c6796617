package osimage

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"go.podman.io/image/v5/types"

	"machine-pivot/fault"
)

// DefaultPatience is how long a registry may be silent before it counts as unavailable.
const DefaultPatience = 2 * time.Minute

// Puller reads images with a host's configuration.
type Puller struct {
	Root     string               // the host's root directory, for default paths; "" is "/"
	AuthFile string               // the pull secret; "" looks in the known places, see PullSecrets
	Patience time.Duration        // how long a registry may be silent; 0 is DefaultPatience
	Log      func(message string) // notes for people; may be nil
	Progress func(Progress)       // called while importing, by one goroutine at a time; may be nil
}

// Progress is how far an import is.
type Progress struct {
	FetchedBytes, TotalBytes int64 // of compressed layers
	Objects                  int   // ostree objects seen
	Done                     bool  // all is imported
}

// Resolve looks an image up: manifest and config, of the platform that this
// program runs on. The result is pinned to the content, which the host's
// signature policy accepts.
func (p *Puller) Resolve(ctx context.Context, ref Reference) (Image, error) {
	opened, err := p.open(ctx, ref)
	if err != nil {
		return Image{}, fmt.Errorf("cannot resolve image %s: %w", ref, err)
	}
	defer opened.Close()
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

// path is a path of the host.
func (p *Puller) path(name string) string { return filepath.Join("/", p.Root, name) }

// system is the library's configuration for an image. Paths in the environment
// (such as CONTAINERS_REGISTRIES_CONF) count only if Root is "/".
func (p *Puller) system(ref Reference) (*types.SystemContext, secret, error) {
	sys := &types.SystemContext{DockerRegistryUserAgent: "pivot"}
	if root := p.path("/"); root != "/" {
		sys.RootForImplicitAbsolutePaths = root
	}
	if !ref.remote() {
		return sys, secret{}, nil
	}
	found, err := p.findSecret(sys, ref)
	if err != nil {
		return nil, found, fault.New(fault.Refused, "%w", err)
	}
	sys.AuthFilePath = found.path
	return sys, found, nil
}
