package osimage_test

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

func TestResolve(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, digest := h.push("legacy", plain(t))
	image, err := h.lookUp(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if image.Digest != digest || image.Reference.Digest() != digest || image.Reference.String() != h.registry.Host()+"/test/os@"+digest {
		t.Errorf("digest %s of %s, want %s", image.Digest, image.Reference, digest)
	}
	if image.Format != osimage.Legacy || image.Version != "1.2.3" || image.Commit != strings.Repeat("a", 64) {
		t.Errorf("%+v", image)
	}
	if len(image.Layers) != 1 || image.Bytes != image.Layers[0].Size || image.Bytes <= 0 {
		t.Errorf("layers %+v, %d bytes", image.Layers, image.Bytes)
	}
	if len(h.notes) != 1 || !strings.Contains(h.notes[0], "no signature policy") {
		t.Errorf("notes: %q", h.notes)
	}
	again, err := h.lookUp(t.Context(), image.Reference)
	if err != nil || again.Digest != digest {
		t.Errorf("by digest: %+v, %v", again, err)
	}
	text, err := json.Marshal(image)
	if err != nil || !strings.Contains(string(text), `"reference":"`+image.Reference.String()+`"`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestResolveFormats(t *testing.T) {
	h := newHost(t, registry.Options{})
	for name, c := range map[string]struct {
		opts []oscontainer.Option
		want osimage.Format
	}{
		"unknown":  {[]oscontainer.Option{oscontainer.WithLabel("com.coreos.ostree-commit", "")}, osimage.Unknown},
		"bootable": {[]oscontainer.Option{oscontainer.WithLabel("com.coreos.ostree-commit", ""), oscontainer.WithLabel("ostree.bootable", "true")}, osimage.Plain},
		"layered":  {[]oscontainer.Option{oscontainer.WithLabel("ostree.final-diffid", "sha256:0")}, osimage.Layered},
	} {
		ref, _ := h.push(name, plain(t, c.opts...))
		image, err := h.puller.Open(t.Context(), ref)
		if err != nil || image.Format != c.want {
			t.Fatalf("%s: %v", name, err)
		}
		defer image.Close()
		if c.want != osimage.Layered {
			continue
		}
		_, err = image.Import(t.Context(), nil, nil)
		if _, check := image.Check(t.Context(), nil); check == nil || check.Error() != err.Error() {
			t.Errorf("%s: the check says %v, the import %v", name, check, err)
		}
		if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "names a layer that it does not have") || fault.HintOf(err) == "" {
			t.Errorf("import of %s: %v", name, err)
		}
	}
}

func TestResolveManifestList(t *testing.T) {
	h := newHost(t, registry.Options{})
	mine, other := plain(t), plain(t, oscontainer.WithLabel("version", "other"))
	_, mineDigest := h.push("mine", mine)
	h.push("other", other)
	for _, kind := range []types.MediaType{types.OCIImageIndex, types.DockerManifestList} {
		list := func(tag string, architectures ...string) imageref.Reference {
			index := mutate.IndexMediaType(empty.Index, kind)
			for i, arch := range architectures {
				img := []v1.Image{mine, other}[i]
				index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
					Platform: &v1.Platform{OS: "linux", Architecture: arch},
				}})
			}
			if _, err := h.registry.PushIndex(t.Context(), "test/os", tag, index); err != nil {
				t.Fatal(err)
			}
			return h.ref(tag)
		}
		image, err := h.lookUp(t.Context(), list("both", runtime.GOARCH, "mips"))
		if err != nil || image.Instance != mineDigest || image.Version != "1.2.3" || image.Digest == mineDigest {
			t.Errorf("%s: %+v, %v", kind, image, err)
		}
		if again, err := h.lookUp(t.Context(), image.Reference); err != nil || again.Instance != mineDigest {
			t.Errorf("%s by digest: %+v, %v", kind, again, err)
		}
		h.puller.Architecture = "aarch64_be" // not the architecture of this program
		foreign, err := h.lookUp(t.Context(), list("foreign", runtime.GOARCH, "aarch64_be"))
		if err != nil || foreign.Version != "other" {
			t.Errorf("%s for another machine: %+v, %v", kind, foreign, err)
		}
		h.puller.Architecture = ""
		for _, others := range [][]string{{"mips", "mips64"}, {}} {
			_, err = h.lookUp(t.Context(), list("none", others...))
			refused(t, err, fault.Refused, "no image found", "not built for this machine's architecture ("+runtime.GOARCH+")")
		}
	}
}

// TestResolveOtherManifests resolves names that stand for something other than an image.
func TestResolveOtherManifests(t *testing.T) {
	h := newHost(t, registry.Options{})
	for _, c := range []struct {
		mediaType         types.MediaType
		raw, text, remedy string
	}{
		{types.DockerManifestSchema1, `{"schemaVersion":1,"name":"os","fsLayers":[],"history":[]}`, "Docker's schema 1", "push the image again"},
		{types.DockerManifestSchema1Signed, `{"schemaVersion":1,"name":"os","fsLayers":[],"history":[],"signatures":[]}`, "Docker's schema 1", "push the image again"},
		{"application/vnd.oci.artifact.manifest.v1+json", `{"mediaType":"application/vnd.oci.artifact.manifest.v1+json"}`, "artifact.manifest.v1+json", ""},
		{types.OCIManifestSchema1, `{"schemaVersion":2`, "manifest", ""},
	} {
		if _, err := h.registry.PushManifest(t.Context(), "test/os", "x", c.mediaType, []byte(c.raw)); err != nil {
			t.Fatal(err)
		}
		_, err := h.lookUp(t.Context(), h.ref("x"))
		if err == nil || fault.KindOf(err).Transient() || !strings.Contains(err.Error(), c.text) || !strings.Contains(fault.HintOf(err), c.remedy) {
			t.Errorf("%s: %v, hint: %s", c.mediaType, err, fault.HintOf(err))
		}
	}
}

// refused checks an error's kind, text and hint.
func refused(t *testing.T, err error, kind fault.Kind, text, hint string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind || !strings.Contains(err.Error(), text) || !strings.Contains(fault.HintOf(err), hint) {
		t.Errorf("error %v\nhint: %s\nkind %d, want %d with %q and a hint with %q", err, fault.HintOf(err), fault.KindOf(err), kind, text, hint)
	}
}

func TestResolveRefusals(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	_, err := h.lookUp(t.Context(), h.ref("missing"))
	refused(t, err, fault.Refused, "manifest", "is the tag right")

	h.remove("/var/lib/kubelet/config.json")
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "unauthorized", "/var/lib/kubelet/config.json")

	h.write("/etc/ostree/auth.json", `{"auths":{"`+h.registry.Host()+`":{"auth":"eDp5"}}}`) // x:y
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "unauthorized", "refused the credentials for "+h.registry.Host()+" in "+h.root+"/etc/ostree/auth.json")

	h.write("/etc/ostree/auth.json", "{")
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "/etc/ostree/auth.json", "")

	h.write("/etc/ostree/auth.json", `{"auths":{"other.example":{"auth":"eDp5"}}}`) // skipped
	h.write("/etc/mco/internal-registry-pull-secret.json", string(h.registry.PullSecret(h.registry.Host())))
	if _, err = h.lookUp(t.Context(), ref); err != nil {
		t.Error(err)
	}

	h.remove("/etc/containers/certs.d/" + h.registry.Host() + "/ca.crt")
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "unknown authority", h.root+"/etc/containers/certs.d/"+h.registry.Host())

	h.write("/etc/docker/certs.d/"+h.registry.Host()+"/ca.crt", string(h.registry.CA()))
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "unknown authority", "certs.d") // the library uses the first directory that exists
}

func TestTransientFailures(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	h.registry.FailNext(2, http.StatusServiceUnavailable)
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Unavailable, "503", h.registry.Host())
	h.registry.FailNext(0, 0)

	if err := h.registry.SetDown(true); err != nil {
		t.Fatal(err)
	}
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Unavailable, "connection refused", "reach "+h.registry.Host())
	if err := h.registry.SetDown(false); err != nil {
		t.Fatal(err)
	}
	if _, err := h.lookUp(t.Context(), ref); err != nil {
		t.Error(err)
	}
	_, err = h.lookUp(t.Context(), parse(t, "no-such-host.invalid/a/b"))
	refused(t, err, fault.Unavailable, "no-such-host.invalid", "DNS")

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = h.lookUp(cancelled, ref)
	refused(t, err, fault.Unavailable, "canceled", "")
}

// TestWrongClock (P32): a wrong clock is reported with the certificate's dates.
func TestWrongClock(t *testing.T) {
	for _, c := range []struct {
		what  string
		start time.Time
		kind  fault.Kind
	}{
		{"is not yet valid", time.Now().Add(48 * time.Hour), fault.Unavailable}, // a time server may still set the clock
		{"has expired", time.Now().Add(-48 * time.Hour), fault.Refused},
	} {
		h := newHost(t, registry.Options{NotBefore: c.start})
		_, err := h.lookUp(t.Context(), h.ref("x"))
		refused(t, err, c.kind, c.what, "clock")
		if year := time.Now().UTC().Format("2006-01-02"); !strings.Contains(err.Error(), "clock says "+year) {
			t.Errorf("%v does not say what the clock says", err)
		}
	}
}

func TestSilentRegistry(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	h.puller.Patience = 300 * time.Millisecond
	h.registry.StallBlobs(1) // the config
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Unavailable, "silent", h.registry.Host())
}
