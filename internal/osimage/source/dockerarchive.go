package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	digestlib "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
)

// dockerArchive has the files of a layout, from an archive as docker save writes it. That archive has no manifest of an
// image. Its manifest.json names the config and the layers by their paths. So a manifest is made, as the image library would:
// the layers are decompressed, and their digests are those in the config.
type dockerArchive struct {
	*archive
	made   map[string][]byte // config and manifest, by their paths in the layout
	layers map[string]saved  // by their paths in the layout
}

// saved is a layer in the archive.
type saved struct {
	name string
	size int64 // of the content
}

// openDockerArchive opens the only image in an archive. The source's Reference returns ref.
func openDockerArchive(ref types.ImageReference, file string) (types.ImageSource, error) {
	in, err := indexArchive(file)
	if err != nil {
		return nil, err
	}
	d := &dockerArchive{in, map[string][]byte{}, map[string]saved{}}
	top, err := d.index()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &layout{ref: ref, files: d, top: top}, nil
}

// index finds the image's parts, and makes its manifest.
func (d *dockerArchive) index() (imgspec.Descriptor, error) {
	list, err := readSmall(d.archive, "manifest.json")
	if err != nil {
		return imgspec.Descriptor{}, err
	}
	var images []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(list, &images); err != nil {
		return imgspec.Descriptor{}, fmt.Errorf("cannot parse manifest.json: %w", err)
	}
	if len(images) != 1 {
		return imgspec.Descriptor{}, fmt.Errorf("it holds %d images, not one", len(images))
	}
	config, err := readSmall(d.archive, images[0].Config)
	if err != nil {
		return imgspec.Descriptor{}, err
	}
	layers, err := d.addLayers(config, images[0].Layers)
	if err != nil {
		return imgspec.Descriptor{}, err
	}
	of := manifest.Schema2Descriptor{MediaType: manifest.DockerV2Schema2ConfigMediaType, Size: int64(len(config)), Digest: d.add(config)}
	text, err := json.Marshal(manifest.Schema2FromComponents(of, layers))
	return imgspec.Descriptor{MediaType: manifest.DockerV2Schema2MediaType, Digest: d.add(text)}, err
}

// add adds a file to the layout.
func (d *dockerArchive) add(text []byte) digestlib.Digest {
	digest := digestlib.FromBytes(text)
	d.made["blobs/sha256/"+digest.Encoded()] = text
	return digest
}

// addLayers adds the layers with these names. Their digests are in the config.
func (d *dockerArchive) addLayers(config []byte, names []string) ([]manifest.Schema2Descriptor, error) {
	var of imgspec.Image
	if err := json.Unmarshal(config, &of); err != nil {
		return nil, fmt.Errorf("cannot parse the config: %w", err)
	}
	if len(of.RootFS.DiffIDs) != len(names) {
		return nil, fmt.Errorf("it has %d layers, and its config tells of %d", len(names), len(of.RootFS.DiffIDs))
	}
	layers := []manifest.Schema2Descriptor{}
	for n, digest := range of.RootFS.DiffIDs {
		at, err := blobPath(digest)
		if err != nil {
			return nil, err
		}
		if _, there := d.layers[at]; !there {
			size, err := d.sizeOf(names[n])
			if err != nil {
				return nil, fmt.Errorf("cannot read the layer %s: %w", names[n], err)
			}
			d.layers[at] = saved{names[n], size}
		}
		layers = append(layers, manifest.Schema2Descriptor{MediaType: manifest.DockerV2Schema2LayerMediaType, Digest: digest, Size: d.layers[at].size})
	}
	return layers, nil
}

// sizeOf returns the size of the content of a file.
func (d *dockerArchive) sizeOf(name string) (int64, error) {
	file, size, err := d.archive.open(name)
	if err != nil {
		return 0, err
	}
	content, compressed, err := decompress(file)
	if compressed && err == nil {
		size, err = io.Copy(io.Discard, content)
	}
	return size, err
}

func (d *dockerArchive) open(name string) (io.ReadCloser, int64, error) {
	if text, ok := d.made[name]; ok {
		return io.NopCloser(bytes.NewReader(text)), int64(len(text)), nil
	}
	layer, ok := d.layers[name]
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	file, _, err := d.archive.open(layer.name)
	if err != nil {
		return nil, 0, err
	}
	content, _, err := decompress(file)
	return io.NopCloser(content), layer.size, err
}
