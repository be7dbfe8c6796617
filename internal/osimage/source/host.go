// Package source opens OS images where they are: it finds the places that a
// reference may be read from, holds the image against the host's signature policy,
// and gives its layers as streams that survive faults.
//
// Sources. Registries, by the containers image library, and local media (oci,
// oci-archive, dir, docker-archive), which never ask the network. Where the
// library looks for its configuration (registries.conf with mirrors, certs.d,
// registries.d) is its own documented default, below Host.Root; pull secrets,
// proxies and the policy are looked up as Host says. Manifests are those of OCI and
// of Docker's schema 2, also in lists; layouts are read as image-spec,
// image-layout.md, has them.
//
// Faults. A layer's download that fails by a transient fault is tried again with
// backoff, from the byte where it stopped (Retry). Manifest and config are not: an
// error says by its kind (package fault) whether trying the whole again can help,
// and its hint what to do. The library itself waits up to five times on a
// registry's "429 Too Many Requests", as long as that says, and resumes a broken
// download once. Errors show no password and no signed URL.
//
// Limits. Layers must have SHA-256 digests; manifests have at most 4 MiB. What the
// layers hold is the caller's business.
package source

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"
)

// Host is the machine whose configuration says where images come from and which
// are accepted. The files that the host's policy names (keyPath) are below Root too.
// Paths in the environment (such as CONTAINERS_REGISTRIES_CONF) and places of
// signatures on this machine (a file: lookaside) are taken as they stand.
type Host struct {
	Root     string               // the host's root directory, for default paths; "" is "/"
	AuthFile string               // the pull secret; "" looks in the known places, see PullSecrets
	Patience time.Duration        // how long a registry may be silent; 0 is two minutes
	Retry    Retry                // of a layer's download; the zero value outlasts the restart of a registry
	Log      func(message string) // notes for people, by any goroutine; may be nil
	// Architecture is the one to choose from a manifest list, as in GOARCH; "" is this program's.
	Architecture string
}

// defaultPatience is how long a registry may be silent before it counts as unavailable.
const defaultPatience = 2 * time.Minute

func (h *Host) log(format string, args ...any) {
	if h.Log != nil {
		h.Log(fmt.Sprintf(format, args...))
	}
}

func (h *Host) patience() time.Duration {
	if h.Patience > 0 {
		return h.Patience
	}
	return defaultPatience
}

// silence is how long a registry may be silent before that is said, at most.
const silence = 5 * time.Second

// soon is how long a registry may be silent before that is said.
func (h *Host) soon() time.Duration { return min(silence, h.patience()/4) }

func (h *Host) retry() Retry {
	if h.Retry.Tries > 0 {
		return h.Retry
	}
	return defaultRetry()
}

// path is a path of the host.
func (h *Host) path(name string) string { return filepath.Join(cmp.Or(h.Root, "/"), name) }
