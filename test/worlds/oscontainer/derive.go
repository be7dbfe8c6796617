package oscontainer

import (
	"archive/tar"
	"fmt"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Derive adds the layers of WithDerived on top of an image, as a container build does.
func Derive(base v1.Image, opts ...Option) (v1.Image, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	img, err := derive(base, o)
	if err != nil {
		return nil, fmt.Errorf("cannot derive an image: %w", err)
	}
	return img, nil
}

func derive(img v1.Image, o options) (v1.Image, error) {
	var layers []mutate.Addendum
	for i, entries := range o.derived {
		file := filepath.Join(o.workDir, fmt.Sprintf("derived-%d.tar", i))
		l, err := writeLayer(file, o.compression.mediaType(), o.compression, writeEntries("", entries))
		if err != nil {
			return nil, err
		}
		layers = append(layers, addendum(l, fmt.Sprintf("RUN derived %d", i+1)))
	}
	return mutate.Append(img, layers...)
}

func addendum(l *layer, createdBy string) mutate.Addendum {
	return mutate.Addendum{Layer: l, MediaType: l.media, Annotations: l.annotations, History: v1.History{
		Created: v1.Time{Time: time.Unix(0, 0).UTC()}, CreatedBy: createdBy,
	}}
}

// Changes returns two derived layers with all common kinds of changes to the small tree of
// package ostreetree.
func Changes() []Option {
	tool := File("usr/bin/tool", "#!/bin/sh\necho one\n")
	tool.Mode, tool.PAXRecords = 0o4755, map[string]string{"SCHILY.xattr.user.derived": "1"}
	owned := File("usr/share/owned-by-derived", "owned")
	owned.Uid, owned.Gid, owned.Mode = 12, 34, 0o640
	again := File("usr/bin/tool", "#!/bin/sh\necho two\n")
	again.Mode = 0o755
	return []Option{
		WithDerived(
			Directory("usr"), Directory("usr/bin"), tool,
			Entry{Header: tar.Header{Name: "usr/bin/tool-too", Linkname: "usr/bin/tool", Typeflag: tar.TypeLink, Mode: 0o4755}},
			Symlink("usr/lib/tool", "../bin/tool"), owned,
			File("usr/lib/.wh.dangling", ""),
			File("etc/passwd", "root:x:0:0::/root:/bin/sh\nderived:x:1:1::/:/bin/sh\n"),
			File("etc/derived.conf", "key=value\n"), File("etc/hostname", ""), File("etc/resolv.conf", ""),
			Directory("var"), Directory("var/lib"), File("var/lib/derived", "state"),
			Directory("run"), File("run/derived", "gone at the next boot"), File("tmp/derived", "gone"),
			Directory("opt"), File("opt/derived", "opt"),
		),
		WithDerived(
			again, File("usr/bin/.wh.tool-too", ""),
			File("usr/share/names/.wh..wh..opq", ""), File("usr/share/names/only", "only"),
		),
	}
}

// WriteLayout writes an image as an OCI layout, for the transport oci:.
func WriteLayout(dir string, img v1.Image) error {
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendImage(img)
	}
	if err != nil {
		return fmt.Errorf("cannot write an OCI layout: %w", err)
	}
	return nil
}
