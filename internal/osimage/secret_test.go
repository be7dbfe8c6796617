package osimage_test

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/source"
	"machine-pivot/test/worlds/registry"
)

// wrongSecret returns an auth.json with credentials that no registry accepts.
func wrongSecret(name string) string {
	return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, name, base64.StdEncoding.EncodeToString([]byte("nobody:nothing")))
}

// TestPullSecretOrder: the first file with credentials for the registry counts. Files before it
// that have credentials for other registries only are skipped, and files after it are not tried.
func TestPullSecretOrder(t *testing.T) {
	places := append(source.PullSecrets(), "/run/containers/0/auth.json") // the last is the library's
	if order := strings.Join(places, " "); order != "/run/ostree/auth.json /etc/ostree/auth.json /var/lib/kubelet/config.json "+
		"/etc/mco/internal-registry-pull-secret.json /usr/lib/ostree/auth.json /run/containers/0/auth.json" {
		t.Errorf("places: %s", order)
	}
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	right, wrong := string(h.registry.PullSecret(h.registry.Host())), wrongSecret(h.registry.Host())
	write := func(first int, secret, later string) {
		for i, place := range places {
			switch {
			case i < first:
				h.write(place, wrongSecret("other.example"))
			case i == first:
				h.write(place, secret)
			default:
				h.write(place, later)
			}
		}
	}
	for i, place := range places {
		write(i, right, wrong)
		if _, err := h.lookUp(t.Context(), ref); err != nil {
			t.Errorf("%s has the pull secret: %v", place, err)
		}
		write(i, wrong, right)
		_, err := h.lookUp(t.Context(), ref)
		refused(t, err, fault.Refused, "unauthorized", "the registry refused the credentials for "+h.registry.Host()+" in "+h.root+place)
	}
}

// TestPullSecretScope: credentials may be for a part of a registry; the most specific
// credentials count.
func TestPullSecretScope(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	host := h.registry.Host()
	right := string(h.registry.PullSecret(host + "/test/os"))
	h.write("/var/lib/kubelet/config.json", strings.TrimSuffix(strings.TrimSuffix(right, "}"), "}")+","+strings.TrimPrefix(wrongSecret(host), `{"auths":{`))
	if _, err := h.lookUp(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// TestAuthFile: if a file is named, no other file is used.
func TestAuthFile(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	h.puller.AuthFile = filepath.Join(h.root, "secret.json")
	h.write("/run/ostree/auth.json", wrongSecret(h.registry.Host()))
	h.write("secret.json", string(h.registry.PullSecret(h.registry.Host())))
	if _, err := h.lookUp(t.Context(), ref); err != nil {
		t.Error(err)
	}
	h.write("secret.json", wrongSecret("other.example")) // the kubelet's file has the right credentials
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "unauthorized", "no credentials for "+h.registry.Host()+" in any of "+h.puller.AuthFile)
	h.remove("secret.json")
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "cannot read pull secret", "--authfile")
	h.write("secret.json", "{")
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "cannot read pull secret "+h.puller.AuthFile, "--authfile")
}
