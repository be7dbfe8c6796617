package source

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	digestlib "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	dockerarchive "go.podman.io/image/v5/docker/archive"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"

	"machine-pivot/internal/osimage/imageref"
)

// savedImage writes an archive like that of docker save, of two layers of which the first occurs twice, the second time as a link.
// compress is the program that compresses each layer, and whole the one for the archive; "" for none.
func savedImage(t *testing.T, compress, whole string) string {
	t.Helper()
	layers := [][]byte{bytes.Repeat([]byte("one "), 5000), bytes.Repeat([]byte("two "), 50)}
	config := imgspec.Image{RootFS: imgspec.RootFS{Type: "layers"}}
	for _, n := range []int{0, 1, 0} {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digestlib.FromBytes(layers[n]))
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []struct{ name, content, link string }{
		{"c.json", string(text), ""},
		{"./a/layer.tar", string(piped(t, compress, layers[0])), ""}, {"b/layer.tar", string(piped(t, compress, layers[1])), ""},
		{"c/layer.tar", "", "../a/layer.tar"},
		{"manifest.json", `[{"Config":"c.json","RepoTags":["os:1"],"Layers":["a/layer.tar","b/layer.tar","c/layer.tar"]}]`, ""},
	} {
		header := &tar.Header{Name: h.name, Mode: 0o644, Size: int64(len(h.content)), Typeflag: tar.TypeReg}
		if h.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, h.link
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, h.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "saved.tar")
	if err := os.WriteFile(path, piped(t, whole, b.Bytes()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// piped returns what a program makes of a content.
func piped(t *testing.T, program string, content []byte) []byte {
	t.Helper()
	if program == "" {
		return content
	}
	cmd := exec.Command(program, "-c")
	cmd.Stdin = bytes.NewReader(content)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(program, err)
	}
	return out
}

// TestDockerArchive: an archive of Docker's is the same image as for the library, whatever in it is compressed.
func TestDockerArchive(t *testing.T) {
	for _, compress := range []string{"", "gzip", "zstd", "xz"} {
		for _, whole := range []string{"", "gzip", "zstd", "xz"} {
			t.Run(compress+" "+whole, func(t *testing.T) {
				path := savedImage(t, compress, whole)
				ref, err := imageref.Parse("docker-archive:" + path)
				if err != nil {
					t.Fatal(err)
				}
				ours, err := openSource(t.Context(), ref, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer ours.Close()
				library, err := dockerarchive.NewReference(path, nil)
				if err != nil {
					t.Fatal(err)
				}
				theirs, err := library.NewImageSource(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer theirs.Close()
				sameImage(t, ours, theirs)
				if a, b := ours.Reference(), library; a.StringWithinTransport() != b.StringWithinTransport() || a.Transport().Name() != b.Transport().Name() || a.PolicyConfigurationIdentity() != "" || len(a.PolicyConfigurationNamespaces()) > 0 {
					t.Errorf("the reference is %s, not %s", a.StringWithinTransport(), b.StringWithinTransport())
				}
			})
		}
	}
}

// sameImage checks that two sources have the same manifest, config and layers.
func sameImage(t *testing.T, ours, theirs types.ImageSource) {
	t.Helper()
	got, mime, err := ours.GetManifest(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, other, err := theirs.GetManifest(t.Context(), nil)
	if err != nil || string(got) != string(want) || mime != other {
		t.Errorf("the manifest is\n%s of %s, want\n%s of %s, %v", got, mime, want, other, err)
	}
	m, err := manifest.FromBlob(got, mime)
	if err != nil {
		t.Fatal(err)
	}
	blobs := []types.BlobInfo{m.ConfigInfo()}
	for _, layer := range m.LayerInfos() {
		blobs = append(blobs, layer.BlobInfo)
	}
	if len(blobs) != 4 {
		t.Errorf("%d blobs", len(blobs))
	}
	for _, blob := range blobs {
		a, b := contentOf(t, ours, blob), contentOf(t, theirs, blob)
		if a != b || int64(len(a)) != blob.Size {
			t.Errorf("%s: %d bytes, want %d", blob.Digest, len(a), len(b))
		}
	}
}

func contentOf(t *testing.T, from types.ImageSource, blob types.BlobInfo) string {
	t.Helper()
	r, size, err := from.GetBlob(t.Context(), blob, none.NoCache)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil || size != int64(len(content)) {
		t.Errorf("%s: %d of %d bytes, %v", blob.Digest, len(content), size, err)
	}
	return string(content)
}

// TestDockerArchiveRefused: what is no image of Docker's is an error that says why.
func TestDockerArchiveRefused(t *testing.T) {
	const config = `{"rootfs":{"diff_ids":["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]}}`
	for want, files := range map[string]map[string]string{
		"manifest.json":                     {"x": ""},
		"cannot parse manifest.json":        {"manifest.json": "{"},
		"it holds 0 images, not one":        {"manifest.json": "[]"},
		"it holds 2 images, not one":        {"manifest.json": "[{},{}]"},
		"no.json: file does not exist":      {"manifest.json": `[{"Config":"no.json"}]`},
		"cannot parse the config":           {"manifest.json": `[{"Config":"c"}]`, "c": "{"},
		"0 layers, and its config tells of": {"manifest.json": `[{"Config":"c"}]`, "c": config},
		"cannot read the layer a":           {"manifest.json": `[{"Config":"c","Layers":["a"]}]`, "c": config},
		"cannot use the digest":             {"manifest.json": `[{"Config":"c","Layers":["a"]}]`, "c": `{"rootfs":{"diff_ids":["../a"]}}`, "a": ""},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(w, files[name])
		}
		_ = w.Close()
		path := filepath.Join(t.TempDir(), "saved.tar")
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		ref, err := imageref.Parse("docker-archive:" + path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openSource(t.Context(), ref, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestScopesOfArchives: a policy with a scope that no image in an archive can have is refused, as by the library.
func TestScopesOfArchives(t *testing.T) {
	for scope, ok := range map[string]bool{
		`"docker-archive":{"":`: true, `"docker-archive":{"/a":`: false,
		`"oci-archive":{"":`: true, `"oci-archive":{"/a":`: true, `"oci-archive":{"a":`: false, `"oci-archive":{"/a/":`: false,
		`"oci":{"a":`: false,
	} {
		policy := fmt.Sprintf(`{"default":[{"type":"reject"}],"transports":{%s[{"type":"reject"}]}}}`, scope)
		if _, err := (&Host{}).parsePolicy([]byte(policy)); (err == nil) != ok {
			t.Errorf("%s: %v", scope, err)
		}
	}
}

// TestBzip2: an archive may be compressed with bzip2, too. Go has no compressor for it.
func TestBzip2(t *testing.T) {
	text, err := base64.StdEncoding.DecodeString("QlpoOTFBWSZTWRkxZT0AAACBAAJEoAAhmmgzTQczi7kinChIDJiynoA=")
	if err != nil {
		t.Fatal(err)
	}
	r, compressed, err := decompress(bytes.NewReader(text))
	if err != nil || !compressed {
		t.Fatal(compressed, err)
	}
	if content, err := io.ReadAll(r); string(content) != "hello" || err != nil {
		t.Errorf("%q, %v", content, err)
	}
}

// TestUnpackedIsGone: an archive that ends too early is an error, and nothing of it is left.
func TestUnpackedIsGone(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, whole := range []string{"gzip", "zstd", "xz"} {
		path := savedImage(t, "", whole)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text[:len(text)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := indexArchive(path); err == nil || !strings.Contains(err.Error(), "cannot unpack "+path) {
			t.Errorf("%s: %v", whole, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
