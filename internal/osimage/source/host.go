// Package source opens OS images: it finds the endpoints that a reference may be read
// from, checks the image by the host's signature policy, and returns its layers as
// streams that survive failures of the network.
//
// Sources. Registries, by the containers image library, and local media (oci,
// oci-archive, dir, docker-archive), for which the network is never used. The library
// looks for its configuration (registries.conf with mirrors, certs.d, registries.d) at
// its documented paths below Host.Root. Pull secrets, proxies and the policy are looked
// up as Host says. Manifests are OCI's and Docker's of schema 2, also in lists; layouts
// are those of image-spec, image-layout.md.
//
// Faults. The download of a layer that fails for a transient reason is tried again with
// backoff, from the byte where it stopped (Host.Retry). Manifest and config are not tried
// again: the kind of the error (package fault) says whether the caller should, and its
// hint what to do. The library itself waits up to five times after "429 Too Many
// Requests", for as long as the registry says, and resumes a broken download once. Errors
// contain no password and no signed URL.
//
// Limits. Layers must have SHA-256 digests; manifests have at most 4 MiB. The content of
// layers is not looked at.
package source

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"machine-pivot/internal/retry"
)

// Host is the machine whose configuration says where images come from and which are
// accepted. Files that its policy names (keyPath) are looked for below Root, too. Paths
// in the environment (such as CONTAINERS_REGISTRIES_CONF) and directories of signatures
// (a file: lookaside) are used as they stand.
type Host struct {
	Root     string               // the host's root directory, for default paths; "" is "/"
	AuthFile string               // the pull secret; "" looks for one, see PullSecrets
	Patience time.Duration        // how long a registry may be silent; 0 is two minutes
	Retry    retry.Policy         // of a layer's download, see defaultRetry; Bound has no effect
	Log      func(message string) // notes for people, by any goroutine; may be nil
	// Architecture is the one to choose from a manifest list, as in GOARCH; "" is this program's.
	Architecture string
}

// defaultPatience is how long a registry may be silent before it counts as unavailable.
const defaultPatience = 2 * time.Minute

func (h *Host) note(format string, args ...any) {
	if h.Log != nil {
		h.Log(fmt.Sprintf(format, args...))
	}
}

func (h *Host) maxSilence() time.Duration {
	if h.Patience > 0 {
		return h.Patience
	}
	return defaultPatience
}

// silence is how long a registry may be silent before that is said, at most.
const silence = 5 * time.Second

// soon is how long a registry may be silent before that is said.
func (h *Host) soon() time.Duration { return min(silence, h.maxSilence()/4) }

func (h *Host) retryPolicy() retry.Policy {
	if h.Retry.Tries > 0 {
		return h.Retry
	}
	return defaultRetry()
}

// path is a path on the host, below its root directory.
func (h *Host) path(name string) string { return filepath.Join(cmp.Or(h.Root, "/"), name) }
