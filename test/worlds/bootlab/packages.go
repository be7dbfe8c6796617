package bootlab

import (
	"context"
	"os"
	"path"
	"strings"

	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/rpmostree"
	"machine-pivot/test/worlds/vm"
)

// Realtime is B as an image, with an extensions image that has a realtime kernel for it.
type Realtime struct {
	Image, Extensions string // references
	Release           string // of the realtime kernel, as in uname -r
}

// Realtime pushes two images to the registry: B with an RPM database that lists its packages, and an
// extensions image. That has Debian's realtime kernel, in packages with the names that the
// machine-config operator's kernel type needs, and usbguard, which is only one file.
func (l *Lab) Realtime(ctx context.Context, builder vm.Builder) (r Realtime, err error) {
	files, err := builder.Kernel(ctx, vm.GuestSpec{}, "linux-image-rt-amd64")
	if err != nil {
		return r, err
	}
	const modules = "/usr/lib/modules"
	core := oscontainer.RPM{Name: "kernel-rt-core", Version: "6.1", Sources: map[string]string{}}
	for _, f := range files {
		if f.Symlink == "" {
			core.Sources[f.Path] = f.Source
		}
		if release, ok := strings.CutSuffix(f.Path, "/vmlinuz"); ok {
			r.Release = path.Base(release)
		}
	}
	r.Extensions, err = l.pushExtensions(ctx, []oscontainer.RPM{
		core, {Name: "kernel-rt-modules", Version: "6.1"}, {Name: "kernel-rt-modules-extra", Version: "6.1"},
		{Name: "usbguard", Version: "1.0", Files: map[string][]byte{"/usr/share/usbguard": []byte("usbguard\n")}},
	})
	if err != nil {
		return r, err
	}
	own, err := l.Guest.KernelRelease(ctx)
	if err != nil {
		return r, err
	}
	r.Image, err = l.WithFiles(ctx, "packages", map[string]string{
		rpmostree.DatabasePath[1:]: string(rpmostree.Database("6.1", map[string][]string{"kernel": nil, "kernel-core": {modules + "/" + own}})),
	})
	return r, err
}

func (l *Lab) pushExtensions(ctx context.Context, packages []oscontainer.RPM) (string, error) {
	img, err := oscontainer.Extensions(packages, l.workDir("extensions"))
	if err != nil {
		return "", err
	}
	return l.Push(ctx, "extensions", img)
}

// WithKernel pushes B with the kernel of a Debian package in place of its own to the registry. It returns the reference, and the
// kernel's release.
func (l *Lab) WithKernel(ctx context.Context, builder vm.Builder, debian string) (image, release string, err error) {
	files, err := builder.Kernel(ctx, vm.GuestSpec{}, debian)
	if err != nil {
		return "", "", err
	}
	layer := map[string]string{}
	for _, f := range files {
		if f.Symlink != "" {
			continue
		}
		content, err := os.ReadFile(f.Source)
		if err != nil {
			return "", "", err
		}
		layer[strings.TrimPrefix(f.Path, "/")] = string(content)
		if dir, ok := strings.CutSuffix(f.Path, "/vmlinuz"); ok {
			release = path.Base(dir)
		}
	}
	own, err := l.Guest.KernelRelease(ctx)
	if err != nil {
		return "", "", err
	}
	var gone []oscontainer.Entry
	if own != release {
		gone = append(gone, oscontainer.File("usr/lib/modules/.wh."+own, ""))
	}
	image, err = l.WithFiles(ctx, debian, layer, gone...)
	return image, release, err
}
