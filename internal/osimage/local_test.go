package osimage_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
)

// localMedia returns the transports of local images.
func localMedia() []string { return []string{"oci", "oci-archive", "dir", "docker-archive"} }

// writeMedium writes an image into a new file or directory and returns its path.
func writeMedium(t *testing.T, transport string, img v1.Image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), transport)
	switch transport {
	case "dir":
		writeDir(t, path, img)
	case "docker-archive":
		if err := tarball.WriteToFile(path, nil, img); err != nil {
			t.Fatal(err)
		}
	case "oci":
		oci, err := layout.Write(path, empty.Index)
		if err != nil {
			t.Fatal(err)
		}
		if err := oci.AppendImage(asOCI(img)); err != nil {
			t.Fatal(err)
		}
	case "oci-archive":
		writeOCIArchive(t, writeMedium(t, "oci", img), path)
	}
	return path
}

// asOCI returns the image with OCI's media types.
func asOCI(img v1.Image) v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// TestLocalBelowRoot: paths of local images are below the host's root, where their directories need not exist outside.
// Their scopes in the policy are the paths that they have on the host, without links.
func TestLocalBelowRoot(t *testing.T) {
	img := plain(t)
	const accept, reject = `[{"type":"insecureAcceptAnything"}]`, `[{"type":"reject"}]`
	for _, transport := range localMedia() {
		h := newLocalHost(t)
		if err := os.MkdirAll(h.root+"/only/below", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(writeMedium(t, transport, img), h.root+"/only/below/os"); err != nil {
			t.Fatal(err)
		}
		h.link("/media", "/only/below")
		linked := filepath.Join(t.TempDir(), "root")
		if err := os.Symlink(h.root, linked); err != nil {
			t.Fatal(err)
		}
		for _, root := range []string{h.root, linked} {
			h.puller.Root = root
			for path, scopes := range map[string][]string{"/only/below/os": {"/only/below/os", "/only/below", "/only"}, "/media/os": {"/only/below/os", "/only"}, "/only/../media/os": {"/only/below"}} {
				for _, scope := range scopes {
					if transport == "docker-archive" {
						scope = "" // the only scope that this transport has
					}
					h.write("/etc/containers/policy.json", `{"default":`+reject+`,"transports":{"`+transport+`":{"`+scope+`":`+accept+`}}}`)
					image, err := h.lookUp(t.Context(), parse(t, transport+":"+path))
					if err != nil || !strings.HasPrefix(image.Reference.String(), transport+":"+path+"@") || image.Source.Name() != root+"/only/below/os" {
						t.Errorf("%s:%s by %q: %+v, %v", transport, path, scope, image, err)
					}
				}
			}
			if transport == "docker-archive" {
				continue
			}
			for _, scope := range []string{h.root, filepath.Dir(h.root), "/media"} {
				h.write("/etc/containers/policy.json", `{"default":`+reject+`,"transports":{"`+transport+`":{"`+scope+`":`+accept+`}}}`)
				_, err := h.lookUp(t.Context(), parse(t, transport+":/media/os"))
				refused(t, err, fault.Refused, "by default: reject", "")
			}
		}
	}
}

func TestLocalImport(t *testing.T) {
	repo, commit := archive(t)
	img := legacy(t, repo, commit)
	for _, transport := range localMedia() {
		t.Run(transport, func(t *testing.T) {
			sample.Short(t, 8)
			h := newLocalHost(t)
			ref := parse(t, transport+":"+writeMedium(t, transport, img))
			image, err := h.lookUp(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if image.Format != osimage.Legacy || image.Commit != commit || !image.Source.IsZero() || image.Reference != ref.Pinned(image.Digest) {
				t.Errorf("%+v", image)
			}
			target := bare(t)
			result, err := h.importRef(image.Reference, target)
			if err != nil {
				t.Fatal(err)
			}
			checkImported(t, target, commit, result)
			_, err = h.lookUp(t.Context(), ref.Pinned("sha256:"+strings.Repeat("0", 64)))
			refused(t, err, fault.BadInput, "its manifest has the digest "+image.Digest, "")
		})
	}
}

// TestLocalDerived: an image with derived layers is the same from each medium.
func TestLocalDerived(t *testing.T) {
	o := newOSTree(t)
	img := o.asBase().derive([][]entry{{regular("usr/bin/tool", "new"), regular("usr/share/one", "1")}, {gone("usr/share/one")}})
	o.write("usr/bin/tool", "new")
	for _, transport := range localMedia() {
		t.Run(transport, func(t *testing.T) {
			sample.Short(t, 8)
			h := newLocalHost(t)
			o.t = t
			image, err := h.lookUp(t.Context(), parse(t, transport+":"+writeMedium(t, transport, img)))
			if err != nil {
				t.Fatal(err)
			}
			target := bare(t)
			result, err := h.importRef(image.Reference, target)
			if err != nil || result.Format != osimage.Layered {
				t.Fatal(result.Format, err)
			}
			sameTree(t, target, result.Commit, o)
		})
	}
}

// TestLocalNames: a layout may hold several images, each by a name.
func TestLocalNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oci")
	oci, err := layout.Write(path, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	versions := []string{"1", "2"}
	for _, version := range versions {
		name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "os-" + version})
		if err := oci.AppendImage(asOCI(plain(t, oscontainer.WithLabel("version", version))), name); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(t.TempDir(), "oci.tar")
	writeOCIArchive(t, path, archive)
	h := newLocalHost(t)
	for _, medium := range []string{"oci:" + path, "oci-archive:" + archive} {
		for _, version := range versions {
			image, err := h.lookUp(t.Context(), parse(t, medium+":os-"+version))
			if err != nil || image.Version != version {
				t.Errorf("%s:os-%s: version %q, %v", medium, version, image.Version, err)
			}
		}
		_, err := h.lookUp(t.Context(), parse(t, medium+":os-3"))
		refused(t, err, fault.BadInput, "os-3", "")
		_, err = h.lookUp(t.Context(), parse(t, medium))
		refused(t, err, fault.BadInput, "more than one image", "")
	}
}

// TestLocalArchive: an archive is read in place; a compressed archive is unpacked.
func TestLocalArchive(t *testing.T) {
	h := newLocalHost(t)
	path := writeMedium(t, "oci-archive", plain(t))
	t.Setenv("TMPDIR", filepath.Join(h.root, "absent"))
	if _, err := h.lookUp(t.Context(), parse(t, "oci-archive:"+path)); err != nil {
		t.Error(err)
	}
	t.Setenv("TMPDIR", h.root)
	if out, err := exec.Command("gzip", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := h.lookUp(t.Context(), parse(t, "oci-archive:"+path+".gz")); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(h.root, "*")); err != nil || len(left) != 0 {
		t.Errorf("%q is left behind, %v", left, err)
	}
}

// TestLocalURLs: layers for which the manifest has URLs are read from the local image, whatever medium it is on.
func TestLocalURLs(t *testing.T) {
	repo, commit := archive(t)
	from := legacy(t, repo, commit)
	layers, err := from.Layers()
	if err != nil {
		t.Fatal(err)
	}
	config, err := from.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	img := empty.Image
	for _, layer := range layers {
		if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, URLs: []string{"https://127.0.0.1:1/layer"}}); err != nil {
			t.Fatal(err)
		}
	}
	if img, err = mutate.Config(img, config.Config); err != nil {
		t.Fatal(err)
	}
	h := newLocalHost(t)
	imports := func(reference string) {
		t.Helper()
		target := bare(t)
		result, err := h.importRef(parse(t, reference), target)
		if err != nil {
			t.Errorf("%s: %v", reference, err)
			return
		}
		checkImported(t, target, commit, result)
	}
	for _, transport := range localMedia() {
		path := writeMedium(t, transport, img)
		imports(transport + ":" + path)
		if strings.HasSuffix(transport, "-archive") {
			if out, err := exec.Command("gzip", path).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			imports(transport + ":" + path + ".gz")
		}
	}
}

// TestLocalPolicy: the scopes of these transports are paths.
func TestLocalPolicy(t *testing.T) {
	img := plain(t)
	for _, transport := range localMedia() {
		h := newLocalHost(t)
		path := writeMedium(t, transport, img)
		ref := parse(t, transport+":"+path)
		resolve := func(policy string) (osimage.Image, error) {
			h.write("/etc/containers/policy.json", policy)
			return h.lookUp(t.Context(), ref)
		}
		_, err := resolve(`{"default":[{"type":"reject"}],"transports":{"docker":{"":[{"type":"insecureAcceptAnything"}]}}}`)
		refused(t, err, fault.Refused, "by default: reject", "policy.json")
		scope := filepath.Dir(path)
		if transport == "docker-archive" {
			scope = "" // the only scope that this transport has
		}
		image, err := resolve(`{"default":[{"type":"reject"}],"transports":{"` + transport + `":{"` + scope + `":[{"type":"insecureAcceptAnything"}]}}}`)
		if want := "transports." + transport + `["` + scope + `"]: insecureAcceptAnything`; err != nil || image.Policy != want {
			t.Errorf("%s: accepted by %q, want %q; %v", transport, image.Policy, want, err)
		}
		if _, err = resolve(`{"default":[{"type":"insecureAcceptAnything"}],"transports":{"` + transport + `":{"":[{"type":"reject"}]}}}`); err == nil {
			t.Errorf("%s: not rejected", transport)
		}
	}
}

// TestLocalSignature: of the local formats only dir: has signatures.
func TestLocalSignature(t *testing.T) {
	const name = "registry.example/os:x"
	h := newLocalHost(t)
	key := newGPGSigner(t, "")
	path := writeMedium(t, "dir", plain(t))
	ref := parse(t, "ostree-image-signed:dir:"+path)
	identity := `,"signedIdentity":{"type":"exactReference","dockerReference":"` + name + `"}}`
	h.write("/etc/containers/policy.json", `{"default":[{"type":"reject"}],"transports":{"dir":{"`+path+`":[`+
		strings.TrimSuffix(key.requirement(t), "}")+identity+`]}}}`)
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, `transports.dir["`+path+`"]: signedBy: A signature was required`, "policy.json")

	plainHost := newLocalHost(t)
	image, err := plainHost.lookUp(t.Context(), parse(t, "dir:"+path))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "signature-1"), key.sign(t, claim{identity: name, digest: image.Digest}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.lookUp(t.Context(), ref); err != nil {
		t.Error(err)
	}
}
