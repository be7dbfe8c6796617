// Package oscontainer builds OS images for tests and demonstrations from an
// ostree repository.
//
// Legacy is the format that OpenShift used up to 4.12 ("machine-os-content"):
// an ordinary container image that holds an archive-mode repository at
// /srv/repo and names its commit in the label com.coreos.ostree-commit. The
// same input gives the same digest.
package oscontainer

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Option changes what Legacy builds.
type Option func(*options)

type options struct {
	workDir string
	layers  int
	prefix  string
	labels  map[string]string
	noRepo  bool
}

// WithWorkDir says where the layers are written. They must stay as long as the
// image is used. Default: a new temporary directory, which is left behind.
func WithWorkDir(dir string) Option { return func(o *options) { o.workDir = dir } }

// WithLayers says over how many layers the objects are spread. Default: 2.
func WithLayers(n int) Option { return func(o *options) { o.layers = max(n, 1) } }

// WithPathPrefix is put before each path in the layers, such as "./" or "/".
func WithPathPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithLabel sets a label, or removes it if the value is empty.
func WithLabel(name, value string) Option {
	return func(o *options) {
		o.labels[name] = value
	}
}

// WithoutRepo leaves /srv/repo out.
func WithoutRepo() Option { return func(o *options) { o.noRepo = true } }

// Legacy builds a legacy oscontainer image from an archive-mode repository.
// The layers are files; reading the image streams them.
func Legacy(archiveRepo, commit, version string, opts ...Option) (v1.Image, error) {
	o := options{layers: 2, labels: map[string]string{
		"com.coreos.ostree-commit": commit,
		"version":                  version,
	}}
	for _, opt := range opts {
		opt(&o)
	}
	img, err := legacy(archiveRepo, version, o)
	if err != nil {
		return nil, fmt.Errorf("cannot build an image from %s: %w", archiveRepo, err)
	}
	return img, nil
}

func legacy(archiveRepo, version string, o options) (v1.Image, error) {
	if o.workDir == "" {
		dir, err := os.MkdirTemp("", "oscontainer-*")
		if err != nil {
			return nil, err
		}
		o.workDir = dir
	}
	contents := [][]entry{rootfs(version)}
	if !o.noRepo {
		repo, err := repoLayers(archiveRepo, o.layers)
		if err != nil {
			return nil, err
		}
		contents = append(contents, repo...)
	}
	img, err := withConfig(empty.Image, o.labels)
	if err != nil {
		return nil, err
	}
	for i, entries := range contents {
		layer, err := makeLayer(filepath.Join(o.workDir, fmt.Sprintf("layer-%d.tar.gz", i)), o.prefix, entries)
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			return nil, err
		}
	}
	return img, nil
}

func withConfig(base v1.Image, labels map[string]string) (v1.Image, error) {
	config, err := base.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config.Labels = maps.Clone(labels)
	maps.DeleteFunc(config.Config.Labels, func(_, value string) bool { return value == "" })
	return mutate.ConfigFile(base, config)
}

// makeLayer writes a layer to a file and reads it from there.
func makeLayer(name, prefix string, entries []entry) (v1.Layer, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(writeLayer(f, prefix, entries), f.Close()); err != nil {
		return nil, fmt.Errorf("cannot write layer %s: %w", name, err)
	}
	return tarball.LayerFromFile(name)
}

// rootfs is the rest of the container: a small file system, as in the real ones.
func rootfs(version string) []entry {
	return []entry{
		directory("etc"), directory("usr"), directory("usr/bin"), directory("usr/lib"), directory("srv"),
		text("usr/lib/os-release", "ID=test\nVERSION_ID="+version+"\n"),
		text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
		text("usr/bin/noop", "#!/bin/sh\n"),
		text("usr/lib/large", strings.Repeat("not an object\n", 10000)),
		symlink("etc/os-release", "../usr/lib/os-release"),
	}
}
