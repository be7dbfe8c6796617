// Package oscontainer builds OS images for tests and demonstrations from an ostree repository.
//
// Legacy is the format that OpenShift used up to 4.12 ("machine-os-content"): an ordinary
// container image that has an archive-mode repository at /srv/repo and names its commit in the
// label com.coreos.ostree-commit.
//
// Encapsulated is the current format ("ostree-native container"): the layers have the objects of
// the commit, distributed so that an update shares layers with the previous version. The
// archives in the layers are byte for byte those of the reference implementation.
//
// Builds are reproducible: the same input gives the same digest.
package oscontainer

import (
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Legacy builds a legacy oscontainer image from an archive-mode repository.
// The layers are files; reading the image streams them.
func Legacy(archiveRepo, commit, version string, opts ...Option) (v1.Image, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{"com.coreos.ostree-commit": commit, "version": version}
	maps.Copy(labels, o.labels)
	img, err := legacy(archiveRepo, version, labels, o)
	if err != nil {
		return nil, fmt.Errorf("cannot build an image from %s: %w", archiveRepo, err)
	}
	return img, nil
}

func legacy(archiveRepo, version string, labels map[string]string, o options) (v1.Image, error) {
	contents := [][]Entry{rootfs(version)}
	if !o.noRepo {
		repo, err := repoLayers(archiveRepo, o.layers)
		if err != nil {
			return nil, err
		}
		contents = append(contents, repo...)
	}
	img, err := withConfig(empty.Image, labels, time.Unix(0, 0).UTC())
	if err != nil {
		return nil, err
	}
	for i, entries := range contents {
		file := filepath.Join(o.workDir, fmt.Sprintf("layer-%d.tar.gz", i))
		l, err := writeLayer(file, types.DockerLayer, Gzip, writeEntries(o.prefix, entries))
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			return nil, err
		}
	}
	return img, nil
}

func withConfig(base v1.Image, labels map[string]string, created time.Time) (v1.Image, error) {
	config, err := base.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Created = v1.Time{Time: created}
	config.Config.Labels = present(labels)
	return mutate.ConfigFile(base, config)
}

// present returns the labels that have a value.
func present(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	return labels
}
