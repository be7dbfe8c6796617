package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	digestlib "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
)

// The tests in this file check the assumptions of this package about undocumented behaviour of
// the image library. They fail if a release of the library changes it.

// libraryBlob returns the only blob of the servers in these tests.
func libraryBlob() ([]byte, types.BlobInfo) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	sum := sha256.Sum256(content)
	return content, types.BlobInfo{Digest: digestlib.NewDigestFromBytes(digestlib.SHA256, sum[:]), Size: int64(len(content))}
}

// librarySource returns the library's source for a registry that serves blobs with a handler.
// The server also offers HTTP/2, which the library does not use yet. Requests for anything
// other than a blob succeed.
func librarySource(t *testing.T, blobs http.HandlerFunc) types.ImageSource {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/blobs/"):
			blobs(w, r)
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", imgspec.MediaTypeImageManifest)
			_, _ = io.WriteString(w, `{"schemaVersion":2}`)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	named, err := reference.ParseNormalizedNamed(strings.TrimPrefix(server.URL, "https://") + "/a/b:x")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := docker.NewReference(named)
	if err != nil {
		t.Fatal(err)
	}
	source, err := ref.NewImageSource(t.Context(), &types.SystemContext{
		DockerInsecureSkipTLSVerify: types.OptionalBoolTrue, SystemRegistriesConfPath: noRegistriesConf, SystemRegistriesConfDirPath: noRegistriesConfDir,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	return source
}

// TestRanges: from a registry with support for ranges only the part is requested. A registry
// that responds with the whole blob, several parts or an error is recognized.
func TestRanges(t *testing.T) {
	content, info := libraryBlob()
	const first = 1000
	parts := func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		err    error
		status int
	}{
		"part": {answer: parts},
		"all":  {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }, err: errNoRanges},
		"several parts": {answer: func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Range", "bytes=1000-2000,3000-4000")
			parts(w, r)
		}, err: errNoRanges},
		"no part": {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestedRangeNotSatisfiable) }, status: 416},
		"denied":  {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, status: 403},
	} {
		t.Run(name, func(t *testing.T) {
			source := librarySource(t, c.answer)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			body, err := openRange(ctx, cancel, source, info, first)
			if c.err != nil || c.status != 0 {
				if !errors.Is(err, c.err) && c.err != nil || statusOf(err) != c.status {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			if err := errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, content[first:]) {
				t.Errorf("%d bytes, want %d: %v", len(got), len(content)-first, err)
			}
		})
	}
}

// TestStatusOfAnswers: the status of a response is found whatever its body is: the protocol's
// JSON, or the text of a proxy or web server in front of the registry.
func TestStatusOfAnswers(t *testing.T) {
	_, info := libraryBlob()
	for _, status := range []int{400, 401, 403, 404, 405, 408, 410, 451, 500, 502, 503, 504} {
		for kind, body := range map[string]string{
			"empty": "", "text": "go away", "HTML": "<!DOCTYPE html>\n<html>StatusCode: 599, </html>", "an object": "{}", "no errors": `{"errors":[]}`,
		} {
			t.Run(fmt.Sprintf("%d with %s", status, kind), func(t *testing.T) {
				source := librarySource(t, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
				})
				_, _, err := source.GetBlob(t.Context(), info, none.NoCache)
				if got := statusOf(err); got != status {
					t.Errorf("status %d of: %v", got, err)
				}
			})
		}
	}
}
