package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// TestImageScripts runs the image commands; see testdata/image/*.txtar.
func TestImageScripts(t *testing.T) {
	need.Ostree(t)
	params := scripts("testdata/image")
	params.Setup = prepareImages
	testscript.Run(t, params)
}

// prepareImages creates a script's files: os and damaged, OCI layouts of a legacy image; other, an image of no host;
// and the bare repositories repo, seen, narrow, dumb and empty. Variables describe the image, and $IMAGE is the same
// image in a registry.
func prepareImages(env *testscript.Env) error {
	img, err := legacyImage(env)
	if err != nil {
		return err
	}
	for _, name := range []string{"os", "damaged"} {
		oci, err := layout.Write(filepath.Join(env.WorkDir, name), empty.Index)
		if err == nil {
			err = oci.AppendImage(img)
		}
		if err != nil {
			return err
		}
	}
	other, err := layout.Write(filepath.Join(env.WorkDir, "other"), empty.Index)
	if err == nil {
		err = other.AppendImage(empty.Image)
	}
	if err != nil {
		return err
	}
	for _, name := range []string{"repo", "seen", "narrow", "dumb", "empty"} {
		if _, err := ostreetree.Ostree("init", "--mode=bare", "--repo="+filepath.Join(env.WorkDir, name)); err != nil {
			return err
		}
	}
	last, err := describeImage(env, img)
	if err != nil {
		return err
	}
	if err := serveImage(env, img); err != nil {
		return err
	}
	return damage(filepath.Join(env.WorkDir, "damaged/blobs/sha256", last.Hex))
}

// serveImage starts a registry with the image, trusted by the root directory net. secret.json
// is its pull secret.
func serveImage(env *testscript.Env, img v1.Image) error {
	r, err := registry.Start(registry.Options{})
	if err != nil {
		return err
	}
	env.Defer(func() { _ = r.Close() })
	if _, err := r.Push(context.Background(), "test/os", "x", img); err != nil {
		return err
	}
	env.Setenv("REGISTRY", r.Host())
	env.Setenv("IMAGE", r.Host()+"/test/os:x")
	certs := filepath.Join(env.WorkDir, "net/etc/containers/certs.d", r.Host())
	return errors.Join(
		os.MkdirAll(certs, 0o755),
		os.WriteFile(filepath.Join(certs, "ca.crt"), r.CA(), 0o600),
		os.WriteFile(filepath.Join(env.WorkDir, "secret.json"), r.PullSecret(r.Host()), 0o600),
	)
}

// legacyImage builds a tree, commits it, and returns an image of the commit.
func legacyImage(env *testscript.Env) (v1.Image, error) {
	tree, archive, layers := filepath.Join(env.WorkDir, ".tree"), filepath.Join(env.WorkDir, ".archive"), filepath.Join(env.WorkDir, ".layers")
	bin, modules := filepath.Join(tree, "usr/bin"), filepath.Join(tree, "usr/lib/modules/1")
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.MkdirAll(modules, 0o755), os.Mkdir(filepath.Join(tree, "sysroot"), 0o755), os.Mkdir(layers, 0o755),
		os.WriteFile(filepath.Join(modules, "vmlinuz"), []byte("kernel"), 0o644), os.WriteFile(filepath.Join(modules, "initramfs.img"), []byte("initramfs"), 0o644),
		os.WriteFile(filepath.Join(tree, "usr/lib/os-release"), []byte("ID=os\n"), 0o644)); err != nil {
		return nil, err
	}
	for i := range 20 {
		content := strings.Repeat(strconv.Itoa(i), 10000)
		if err := os.WriteFile(filepath.Join(bin, fmt.Sprint("tool-", i)), []byte(content), 0o755); err != nil {
			return nil, err
		}
	}
	if _, err := ostreetree.Ostree("init", "--mode=archive", "--repo="+archive); err != nil {
		return nil, err
	}
	commit, err := ostreetree.Ostree("commit", "--repo="+archive, "--branch=os", tree)
	if err != nil {
		return nil, err
	}
	objects, err := filepath.Glob(filepath.Join(archive, "objects/*/*"))
	if err != nil {
		return nil, err
	}
	env.Setenv("COMMIT", commit)
	env.Setenv("OBJECTS", strconv.Itoa(len(objects)))
	img, err := oscontainer.Legacy(archive, commit, "1.2.3", oscontainer.WithWorkDir(layers))
	if err != nil {
		return nil, err
	}
	return inOCI(img), nil
}

// inOCI returns an image with an OCI manifest.
func inOCI(img v1.Image) v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// describeImage sets DIGEST, BYTES, LAYERn and SIZEn, and returns the last layer's digest.
func describeImage(env *testscript.Env, img v1.Image) (last v1.Hash, err error) {
	m, err := img.Manifest()
	if err != nil {
		return last, err
	}
	digest, err := img.Digest()
	if err != nil {
		return last, err
	}
	var bytes int64
	for i, layer := range m.Layers {
		env.Setenv(fmt.Sprint("LAYER", i+1), layer.Digest.String())
		env.Setenv(fmt.Sprint("SIZE", i+1), strconv.FormatInt(layer.Size, 10))
		bytes += layer.Size
		last = layer.Digest
	}
	env.Setenv("DIGEST", digest.String())
	env.Setenv("BYTES", strconv.FormatInt(bytes, 10))
	return last, nil
}

// damage changes a byte in the middle of a file.
func damage(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	content[len(content)/2] ^= 1
	return os.WriteFile(path, content, 0o600)
}
