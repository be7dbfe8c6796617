package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/test/worlds/registry"
)

// world is the environment of the contenders: the images in a registry.
type world struct {
	settings
	registry *registry.Registry
	server   string // HOST:PORT at which the contenders reach the registry
	tree     treeFacts
	images   map[string]image

	root, listing string // of the tree of all images except the updated ones; see builder
	spreadRoot    string
	former        string

	coldCache bool  // the page cache is empty when a contender starts
	content   int64 // total size of the content objects of the legacy image
}

const containersConfPath = "etc/containers/containers.conf"

// image is an image in the registry.
type image struct {
	Name   string   `json:"name"`
	Digest string   `json:"digest"`
	Commit string   `json:"commit,omitempty"` // the commit that it carries, if any
	Bytes  int64    `json:"bytes"`            // size of the layers in the registry
	New    int64    `json:"new"`              // size of the layers that no earlier image has
	Layers []string `json:"layers"`           // digests in hex
}

// Paths of a run.
func (w *world) blobs() string   { return filepath.Join(w.dir, "registry") }
func (w *world) host() string    { return filepath.Join(w.dir, "host") } // root directory with the configuration
func (w *world) trial() string   { return filepath.Join(w.dir, "trial") }
func (w *world) packs() string   { return filepath.Join(w.dir, "packs") }
func (w *world) archive() string { return filepath.Join(w.dir, "archive") } // see builder
func (w *world) certs() string {
	return filepath.Join(w.host(), "etc/containers/certs.d", w.server)
}
func (w *world) secret() string { return filepath.Join(w.host(), "etc/containers/auth.json") }

func newWorld(ctx context.Context, s settings) (_ *world, err error) {
	w := &world{settings: s, images: map[string]image{}, coldCache: true}
	if w.registry, err = registry.Start(registry.Options{Dir: w.blobs()}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = w.registry.Close() // the other error is more relevant
		}
	}()
	w.server = w.registry.Host()
	if w.link.is() {
		port, err := w.link.start(w.registry.Port())
		if err != nil {
			return nil, err
		}
		w.server = fmt.Sprintf("127.0.0.1:%d", port)
	}
	if err := w.configure(); err != nil {
		return nil, err
	}
	b := builder{settings: s, dir: s.dir, take: func(name, commit string, img v1.Image) error {
		return w.publish(ctx, name, commit, img)
	}}
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	w.tree, w.root, w.listing, w.spreadRoot, w.former = b.tree, b.root, b.listing, b.spreadRoot, b.former
	if w.content, err = makePacks(b.archive, w.packs()); err != nil {
		return nil, err
	}
	if !w.has(partsPart) { // otherwise it is removed at the end
		if err := os.RemoveAll(b.archive); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// configure writes the host configuration for the registry, and for podman to keep its stores below
// the run's directory.
func (w *world) configure() error {
	files := map[string]string{
		filepath.Join(w.certs(), "ca.crt"):                    string(w.registry.CA()),
		w.secret():                                            string(w.registry.PullSecret(w.server)),
		filepath.Join(w.host(), containersConfPath):           fmt.Sprintf(containersConf, filepath.Join(w.trial(), "libpod")),
		filepath.Join(w.host(), "etc/containers/policy.json"): `{"default": [{"type": "insecureAcceptAnything"}]}`,
	}
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return writePolicy(filepath.Join(w.host(), "etc/selinux"))
}

// publish pushes an image.
func (w *world) publish(ctx context.Context, name, commit string, img v1.Image) error {
	digest, err := w.registry.Push(ctx, "os", name, img)
	if err != nil {
		return err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	published := image{Name: name, Digest: digest, Commit: commit}
	for _, l := range manifest.Layers {
		published.Bytes += l.Size
		if !w.hasLayer(l.Digest.Hex) {
			published.New += l.Size
		}
		published.Layers = append(published.Layers, l.Digest.Hex)
	}
	w.images[name] = published
	return nil
}

// hasLayer reports whether a published image has the layer.
func (w *world) hasLayer(digest string) bool {
	for _, i := range w.images {
		if slices.Contains(i.Layers, digest) {
			return true
		}
	}
	return false
}

// reference returns the reference of an image by digest.
func (w *world) reference(i image) string {
	return fmt.Sprintf("%s/os@%s", w.server, i.Digest)
}

// blobURLs returns the URLs of an image's layers.
func (w *world) blobURLs(i image) (urls []string) {
	for _, layer := range i.Layers {
		urls = append(urls, fmt.Sprintf("https://%s/v2/os/blobs/sha256:%s", w.server, layer))
	}
	return urls
}
