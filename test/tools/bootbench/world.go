package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/test/tools/machinefiles"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/vm"
)

// world is what all ways have in common: the guest, and a registry with the OS image and the tool image.
type world struct {
	options
	lab  *bootlab.Lab
	dir  string
	want bootlab.Want
	tool string // reference of the tool image
	facts
}

// facts are the sizes of what is measured, in bytes.
type facts struct {
	OSImage   int64 `json:"os_image_bytes"` // its layers, compressed
	ToolImage int64 `json:"tool_image_bytes"`
}

func newWorld(ctx context.Context, s options, dir string) (_ *world, err error) {
	builder := vm.Builder{Log: s.log}
	spec := vm.GuestSpec{SameKernel: sameKernel(s.ways)}
	if s.box {
		spec.Suite = vm.Trixie // the oldest release that boots in a box
	}
	if spec.Overlay, err = withPodman(ctx, builder, spec); err != nil {
		return nil, err
	}
	if !s.box {
		gauge, err := gaugeFiles(ctx, dir)
		if err != nil {
			return nil, err
		}
		spec.Overlay = append(spec.Overlay, gauge...)
	}
	if spec.OverlayB, err = moreFiles(filepath.Join(dir, "more"), s.more); err != nil {
		return nil, err
	}
	w := &world{options: s, dir: dir}
	if w.lab, err = bootlab.NewOf(ctx, s.source, spec, s.log); err != nil {
		return nil, err
	}
	w.lab.Boxed = s.box
	w.want = w.lab.Wanted()
	image, err := w.toolImage()
	if err == nil {
		w.tool, err = w.lab.Push(ctx, "machine-config-operator", image)
	}
	if err == nil {
		w.ToolImage, err = layersOf(image)
	}
	if err == nil {
		w.OSImage, err = layersOf(w.lab.OSImage())
	}
	if err != nil {
		return nil, errors.Join(err, w.lab.Close())
	}
	return w, nil
}

// layersOf returns the size of an image's layers in the registry.
func layersOf(image v1.Image) (size int64, err error) {
	manifest, err := image.Manifest()
	if err != nil {
		return 0, err
	}
	for _, l := range manifest.Layers {
		size += l.Size
	}
	return size, nil
}

// meanSize is the mean size of the files of the tool image and of those that B has in addition, in bytes, as on a
// host.
const meanSize = 50_000

// generate writes files with about the given size below a directory, the same on each machine.
func generate(dir string, size int64, seed uint64) error {
	return machinefiles.Generate(dir, max(1, int(size/meanSize)), size, seed)
}

// moreFiles returns files for B with about the given size. dir must be kept while they are used.
func moreFiles(dir string, size int64) ([]vm.TreeFile, error) {
	if size == 0 {
		return nil, nil
	}
	if err := generate(filepath.Join(dir, "usr/share/more"), size, 1); err != nil {
		return nil, err
	}
	return vm.TreeFiles(dir)
}

// toolImage makes an image as large as that of the machine-config-operator, with a program in it, and with cp to
// take it out.
func (w *world) toolImage() (v1.Image, error) {
	tree := filepath.Join(w.dir, "tool")
	if err := generate(filepath.Join(tree, "usr/share/tool"), w.options.tool, 2); err != nil {
		return nil, err
	}
	programs, err := machinefiles.WithLibraries("/bin/cp")
	if err != nil {
		return nil, err
	}
	copies := map[string]string{filepath.Join(w.lab.Bin(), "pivot"): "/usr/bin/machine-config-daemon"}
	for _, file := range programs {
		copies[file] = file
	}
	for from, to := range copies {
		if err := machinefiles.Copy(from, filepath.Join(tree, to)); err != nil {
			return nil, err
		}
	}
	work := filepath.Join(w.dir, "tool-layers")
	if err := os.Mkdir(work, 0o755); err != nil {
		return nil, err
	}
	return oscontainer.PlainTree(tree, "tool", 5, oscontainer.WithWorkDir(work))
}
