// Package source opens OS images. It finds the endpoints of a reference, checks the image against the host's signature
// policy, and returns its layers as streams that survive network failures.
//
// Sources. Images are read from registries, with the containers image library, and from local
// media (oci, oci-archive, dir, docker-archive), for which the network is never used. The
// library looks for its configuration (registries.conf with mirrors, certs.d, registries.d) at
// its documented paths below Host.Root. Pull secrets, proxies and the policy are looked
// up as described at Host. Supported manifests are those of OCI and of Docker's schema 2, also
// in lists; layouts are those of image-spec, image-layout.md.
//
// Faults. The download of a layer that fails for a transient reason is retried with backoff from the byte where it
// stopped (Host.Retry). Manifest and config are not retried. The error's kind (package fault) tells the caller whether
// a retry can help, its hint what to do, and retry.AskedBy how long to leave the registry alone. The library itself
// waits up to five times after "429 Too Many Requests", for as long as the registry requests; its next request is then
// delayed at random. Errors contain no password and no signed URL.
//
// Limits. Layers must have SHA-256 digests; manifests have at most 4 MiB. The content of
// layers is not interpreted.
package source

import (
	"cmp"
	"fmt"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/retry"
)

// Host is the machine with the configuration that determines where images come from and which are accepted. Files are
// the ones that the host would read if it was started from Root. Symbolic links are followed below Root, and out of
// Root only if their target is not there. Files that its policy names (keyPath) are looked up below Root too. Paths in
// the environment (such as CONTAINERS_REGISTRIES_CONF), in the home directory, and directories of signatures (a file:
// lookaside) are used unchanged.
type Host struct {
	Root     string               // the host's root directory, for default paths; "" is "/"
	AuthFile string               // the pull secret; "" searches the paths of PullSecrets
	Patience time.Duration        // how long a registry may be silent; 0 is two minutes
	Retry    retry.Policy         // for downloads of layers, see defaultRetry, of which it replaces Bound, Sleep and Now if it has no Tries
	Log      func(message string) // takes notes for people, from any goroutine; may be nil
	// Architecture is the architecture to choose from a manifest list, as in GOARCH; "" is this
	// program's.
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

// unreadable is the error for files of the host's configuration that cannot be read. file names what to correct.
func unreadable(what string, err error, file string) error {
	f := fault.New(fault.Refused, "cannot read %s: %w", what, err)
	if fault.HintOf(err) != "" { // that is more exact
		return f
	}
	return f.WithHint("correct or remove %s", file)
}

// namedInError is what to correct if the library has found it: its errors name the file.
const namedInError = "the file that the error names"

// maxNoticeDelay is the upper limit of noticeDelay.
const maxNoticeDelay = 5 * time.Second

// noticeDelay returns how long a registry may be silent before that is logged.
func (h *Host) noticeDelay() time.Duration { return min(maxNoticeDelay, h.maxSilence()/4) }

func (h *Host) retryPolicy() retry.Policy {
	if h.Retry.Tries > 0 {
		return h.Retry
	}
	p := defaultRetry()
	p.Bound = cmp.Or(h.Retry.Bound, p.Bound)
	p.Sleep, p.Now = h.Retry.Sleep, h.Retry.Now
	return p
}
