// Command ociimage writes a container image with the files of a directory and nothing else, as an OCI
// image layout. The same files and the same time give the same bytes. "make image" and "make agent-image" run it.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

// what is what an image says of itself.
type what struct {
	arch, version, revision string
	title, program          string
	created                 time.Time
}

func write(args []string) error {
	var w what
	var epoch int64
	flags := flag.NewFlagSet("ociimage", flag.ContinueOnError)
	flags.StringVar(&w.arch, "arch", "", "GOARCH of the programs")
	flags.StringVar(&w.version, "version", "", "version, which is the image's tag too")
	flags.StringVar(&w.title, "title", "", "title")
	flags.StringVar(&w.program, "program", "", "path of the program that a container runs; its help, unless it is given arguments")
	flags.StringVar(&w.revision, "revision", "", "commit")
	flags.Int64Var(&epoch, "epoch", 0, "time of all files and of the image, in seconds since 1970")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 2 || w.arch == "" || w.version == "" || w.title == "" || w.program == "" {
		return fmt.Errorf("usage: ociimage -arch ARCH -version VERSION -title TITLE -program PATH [-revision COMMIT] [-epoch SECONDS] TREE LAYOUT")
	}
	w.created = time.Unix(epoch, 0).UTC()
	layer, err := layerOf(flags.Arg(0), w.created)
	if err != nil {
		return err
	}
	if err := save(flags.Arg(1), w, layer); err != nil {
		return err
	}
	_, err = fmt.Printf("oci:%s:%s\n", flags.Arg(1), tag(w.version))
	return err
}

// layer is the only layer of the image.
type layer struct {
	compressed []byte
	diffID     digest.Digest // of the uncompressed layer
}

// layout is a directory with an image.
type layout struct{ dir string }

// save writes the image into a directory, which has nothing else afterwards.
func save(dir string, w what, l layer) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, v1.ImageBlobsDir, "sha256"), 0o755); err != nil {
		return err
	}
	out := layout{dir}
	data, err := out.blob(v1.MediaTypeImageLayerGzip, l.compressed)
	if err != nil {
		return err
	}
	config, err := out.document(v1.MediaTypeImageConfig, w.config(l))
	if err != nil {
		return err
	}
	manifest, err := out.document(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: config, Layers: []v1.Descriptor{data}, Annotations: w.annotations(),
	})
	if err != nil {
		return err
	}
	manifest.Platform = &v1.Platform{OS: "linux", Architecture: w.arch}
	manifest.Annotations = map[string]string{v1.AnnotationRefName: tag(w.version)}
	return out.index(v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{manifest},
	})
}

// tag returns a version as a tag, in which some of its characters are not allowed.
func tag(version string) string {
	return string(bytes.Map(func(r rune) rune {
		if r == '+' || r == '~' {
			return '-'
		}
		return r
	}, []byte(version)))
}

func (w what) config(l layer) v1.Image {
	return v1.Image{
		Created:  &w.created,
		Platform: v1.Platform{OS: "linux", Architecture: w.arch},
		Config: v1.ImageConfig{
			Env:    []string{"PATH=/usr/bin"},
			Cmd:    []string{w.program, "--help"},
			Labels: w.annotations(),
		},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{l.diffID}},
		History: []v1.History{{Created: &w.created, CreatedBy: "make image"}},
	}
}

func (w what) annotations() map[string]string {
	all := map[string]string{
		v1.AnnotationTitle:   w.title,
		v1.AnnotationVersion: w.version,
		v1.AnnotationCreated: w.created.Format(time.RFC3339),
	}
	if w.revision != "" {
		all[v1.AnnotationRevision] = w.revision
	}
	return all
}

func (o layout) document(mediaType string, value any) (v1.Descriptor, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return o.blob(mediaType, text)
}

// blob writes a blob.
func (o layout) blob(mediaType string, data []byte) (v1.Descriptor, error) {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.NewDigestFromEncoded(digest.SHA256, sum), Size: int64(len(data))}
	return d, os.WriteFile(filepath.Join(o.dir, v1.ImageBlobsDir, "sha256", sum), data, 0o644)
}

// index writes what makes a directory a layout.
func (o layout) index(index v1.Index) error {
	for name, value := range map[string]any{
		v1.ImageLayoutFile: v1.ImageLayout{Version: v1.ImageLayoutVersion}, v1.ImageIndexFile: index,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(o.dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
