package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	digestlib "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/retry"
)

// Limits of what is read to find the bundles of an image.
const (
	maxReferrers = 64      // manifests that may have a bundle
	maxPages     = 32      // of the list of what refers to the image
	maxIndexSize = 4 << 20 // of a page, in bytes, and of each manifest
)

// bundles are what a registry has for an image.
type bundles struct {
	found  [][]byte
	unread []string // why others cannot be read; they may be of no interest
}

func (b *bundles) skip(what string, err error) {
	b.unread = append(b.unread, fmt.Sprintf("cannot read %s: %v", what, err))
}

// bundles returns the registry's Sigstore bundles for the manifest with a digest: layers of the manifests that refer to
// it. The registry lists these, or has an image index with a tag made from the digest (OCI distribution specification
// 1.1, "Referrers Tag Schema").
//
// Anybody who may push can let something refer to the image. So what cannot be read, and will not be readable
// later, is skipped: one of the others may be the signature. Only a failure that may pass is an error.
func (at endpoint) bundles(ctx context.Context, digest digestlib.Digest) (b bundles, err error) {
	candidates := 0
	next := at.registry.inRepository("/referrers/" + digest.String())
	for page := 0; next != (url.URL{}); page++ {
		if page == maxPages {
			b.skip("the whole list of what refers to the image", fmt.Errorf("it has more than %d pages", maxPages))
			break
		}
		var index imgspec.Index
		index, next, err = at.registry.referrers(ctx, next)
		if page == 0 && (isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusMethodNotAllowed)) {
			index, err = at.registry.tagged(ctx, digest)
		}
		if at.mayPass(ctx, err) {
			return b, err
		}
		if err != nil {
			b.skip("the list of what refers to the image", err)
			break
		}
		for _, m := range index.Manifests {
			if !mayBeBundle(m) {
				continue
			}
			if candidates++; candidates > maxReferrers {
				b.skip("all that refers to the image", fmt.Errorf("more than %d manifests may have a signature", maxReferrers))
				return b, nil
			}
			blobs, err := at.registry.bundlesIn(ctx, m)
			if at.mayPass(ctx, err) {
				return b, err
			}
			if err != nil {
				b.skip(m.Digest.String()+", which refers to the image", err)
			}
			b.found = append(b.found, blobs...)
		}
	}
	return b, nil
}

// mayPass reports whether an error is of a failure that may pass.
func (at endpoint) mayPass(ctx context.Context, err error) bool {
	return err != nil && fault.KindOf(at.classifier.classify(ctx, err, fault.Refused)).Transient()
}

// mayBeBundle reports whether a manifest may have a bundle. Registries and clients that are older than the
// specification's final version put the type of the config in the place of the artifact's type.
func mayBeBundle(m imgspec.Descriptor) bool {
	return m.MediaType == imgspec.MediaTypeImageManifest &&
		(m.ArtifactType == "" || m.ArtifactType == imgspec.MediaTypeEmptyJSON || slices.Contains(bundleMediaTypes(), m.ArtifactType))
}

// referrers reads a page of the list of what refers to an image, and returns the address of the next one, or none.
func (r *registry) referrers(ctx context.Context, at url.URL) (index imgspec.Index, next url.URL, err error) {
	data, header, err := r.read(ctx, at, maxIndexSize)
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err == nil {
		next, err = nextPage(at, header)
	}
	return index, next, err
}

// nextPage returns the address that the header of a page links to (RFC 8288, rel="next"), or none. It has to be of the
// same server, which gets the credentials.
func nextPage(at url.URL, header http.Header) (next url.URL, err error) {
	for _, link := range strings.Split(strings.Join(header.Values("Link"), ","), ",") {
		target, parameters, _ := strings.Cut(strings.TrimSpace(link), ";")
		rel := strings.ReplaceAll(strings.ReplaceAll(parameters, " ", ""), `"`, "")
		if !slices.Contains(strings.Split(rel, ";"), "rel=next") {
			continue
		}
		to, err := at.Parse(strings.Trim(target, "<>"))
		if err != nil {
			return next, err
		}
		if to.Scheme != at.Scheme || to.Host != at.Host || *to == at {
			return next, fmt.Errorf("the registry names %s://%s for its next page", to.Scheme, to.Host)
		}
		return *to, nil
	}
	return next, nil
}

// tagged reads the image index that clients keep where the registry has no list. There may be none.
func (r *registry) tagged(ctx context.Context, digest digestlib.Digest) (index imgspec.Index, err error) {
	data, _, err := r.read(ctx, r.inRepository("/manifests/"+strings.Replace(digest.String(), ":", "-", 1)), maxIndexSize)
	if isStatus(err, http.StatusNotFound) {
		return index, nil // nothing refers to the image
	}
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	return index, err
}

// bundlesIn returns the bundles that are layers of a manifest.
func (r *registry) bundlesIn(ctx context.Context, of imgspec.Descriptor) (found [][]byte, err error) {
	data, err := r.readDigested(ctx, "/manifests/", of, maxIndexSize)
	if err != nil {
		return nil, err
	}
	var m imgspec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("cannot parse the manifest: %w", err)
	}
	for _, l := range m.Layers {
		if !slices.Contains(bundleMediaTypes(), l.MediaType) || len(found) > 0 { // a manifest has one
			continue
		}
		blob, err := r.readDigested(ctx, "/blobs/", l, maxBundle)
		if err != nil {
			return nil, err
		}
		found = append(found, blob)
	}
	return found, nil
}

// readDigested reads what a descriptor names, and verifies it. What is too large is not requested.
func (r *registry) readDigested(ctx context.Context, below string, of imgspec.Descriptor, most int64) ([]byte, error) {
	if err := checkDigest("a signature", of.Digest); err != nil {
		return nil, err
	}
	if of.Size > most {
		return nil, fmt.Errorf("it has %d bytes, which is more than the %d of a signature", of.Size, most)
	}
	data, _, err := r.read(ctx, r.inRepository(below+of.Digest.String()), most)
	if err == nil && digestlib.FromBytes(data) != of.Digest {
		err = fmt.Errorf("the registry answers with something else for %s", of.Digest)
	}
	return data, err
}

// read requests something of the registry and returns the body, of at most most bytes, and header of the answer.
func (r *registry) read(ctx context.Context, at url.URL, most int64) ([]byte, http.Header, error) {
	request, err := r.request(ctx, http.MethodGet, at)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Accept", imgspec.MediaTypeImageIndex+", "+imgspec.MediaTypeImageManifest+", */*")
	response, err := r.client().Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, nil, retry.WithAsked(answer{response.StatusCode}, response.Header.Get)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("the answer to %s has more than %d bytes", at.Path, most)
	}
	return data, response.Header, err
}

// isStatus reports whether an error is that of a response with a status.
func isStatus(err error, status int) bool {
	got, ok := errors.AsType[answer](err)
	return ok && got.status == status
}
