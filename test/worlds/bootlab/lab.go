// Package bootlab is an environment for complete first boots: an OS A and its successor B as bootable guests, and a TLS
// registry that serves B. Its disks boot A as Ignition leaves it, or with a given encapsulated MachineConfig. The
// end-to-end tests and the demonstration use it.
package bootlab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/pinning"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
	"machine-pivot/test/worlds/vm"
)

// Lab is such an environment. The caller must close it.
type Lab struct {
	Guest    *vm.Guest
	Registry *registry.Registry
	Image    string // reference of B for guests, with the digest
	Boxed    bool   // the machines that it makes from now on boot in boxes, not in QEMU
	selinux  vm.SELinux
	dir      string
	shared   shared
}

// shared is what a lab and those that Alone makes from it have in common.
type shared struct {
	bin   string   // the directory of pivot and pivotctl, to run on the host
	blobs string   // the directory of the registries' blobs
	image v1.Image // B
}

// GuestHost is the address at which a guest reaches the host.
const GuestHost = "10.0.2.2"

// New makes a lab: it builds what is not cached and starts the registry. source is the root of this
// project's checkout.
func New(ctx context.Context, source string, log io.Writer) (*Lab, error) {
	return NewOf(ctx, source, vm.GuestSpec{}, log)
}

// NewOf is like New, with the guest that spec describes. pivot is installed in it, and what further targets
// of make build or install, such as "build" and "install-agent".
func NewOf(ctx context.Context, source string, spec vm.GuestSpec, log io.Writer, further ...string) (_ *Lab, err error) {
	l := &Lab{selinux: spec.SELinux}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.dir, err = os.MkdirTemp("", "pivot-lab-*"); err != nil {
		return nil, err
	}
	dest := filepath.Join(l.dir, "install")
	installed, err := Install(ctx, source, dest, further...)
	if err != nil {
		return nil, err
	}
	builder := vm.Builder{Log: log}
	spec.Overlay = append(installed, spec.Overlay...)
	if l.Guest, err = builder.Guest(ctx, spec); err != nil {
		return nil, err
	}
	l.shared = shared{bin: dest + builtSuffix, blobs: filepath.Join(l.dir, "blobs")}
	l.shared.image, err = oscontainer.Legacy(l.Guest.ArchiveRepo, l.Guest.CommitB, "B.2", oscontainer.WithWorkDir(l.dir))
	if err != nil {
		return nil, err
	}
	return l, l.serve(ctx)
}

// Alone returns a lab with the same guest but another registry and directory, so that changes to one
// do not affect the other. The caller must close it before l.
func (l *Lab) Alone(ctx context.Context) (_ *Lab, err error) {
	own := &Lab{Guest: l.Guest, Boxed: l.Boxed, selinux: l.selinux, shared: l.shared}
	if own.dir, err = os.MkdirTemp(l.dir, "alone-*"); err != nil {
		return nil, err
	}
	if err := own.serve(ctx); err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return own, nil
}

// Bin returns the directory with what was built for the lab: pivot and pivotctl, or with the target "build" all programs.
func (l *Lab) Bin() string { return l.shared.bin }

// OSImage returns the image of B that Image refers to.
func (l *Lab) OSImage() v1.Image { return l.shared.image }

// builtSuffix is the suffix that makes the name of the build directory from that of the installation
// directory.
const builtSuffix = ".built"

// Install runs "make build-host install-host" and further targets into the directory dest, enables the units by preset
// as an image build does, and returns the files.
func Install(ctx context.Context, source, dest string, further ...string) ([]vm.TreeFile, error) {
	// A separate BIN, because another lab may be installing at the same time.
	targets := append([]string{"build-host", "install-host"}, further...)
	for _, argv := range [][]string{
		append([]string{"make", "-s", "-C", source, "DESTDIR=" + dest, "BIN=" + dest + builtSuffix}, targets...),
		{"systemctl", "-q", "--root=" + dest, "preset", "pivot-firstboot.service", "pivot-live.service", "pivot-nic-names.service", "pivot-project.service", "pivot-slot.service", "pivot-static-pods.service", "pivot-static-pods.path", "pivot-trial.service"},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("cannot install pivot: %w\n%s", err, out)
		}
	}
	return vm.TreeFiles(dest)
}

// serve starts the registry and pushes B to it.
func (l *Lab) serve(ctx context.Context) (err error) {
	if l.Registry, err = registry.Start(registry.Options{Dir: l.shared.blobs}); err != nil {
		return err
	}
	l.Image, err = l.Push(ctx, "machine-os-content", l.shared.image)
	return err
}

// Close stops the registry and removes the lab's directory.
func (l *Lab) Close() error {
	var err error
	if l.Registry != nil {
		err = l.Registry.Close()
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}

// Want is the target that a MachineConfig describes.
type Want struct {
	Image   string
	Kargs   []string
	Pinning pinning.Workloads
	// KernelType is "" for the default kernel. ExtensionsImage has the packages of the kernel type and
	// of the extensions.
	KernelType, ExtensionsImage string
	Extensions                  []string

	Unit bool // also an enabled systemd unit that prints UnitSays on the console
	// LayerUnits enables the unit that the derived layers do not enable, and disables the one that
	// they do.
	LayerUnits bool
}

// The unit of Want.Unit and what it prints.
const (
	unitName = "lab-unit.service"
	UnitSays = "@@unit " + unitName + " runs"
)

// units returns the units for an Ignition config.
func (w Want) units() (all []map[string]any) {
	if w.Unit {
		all = append(all, map[string]any{"name": unitName, "enabled": true, "contents": saying(UnitSays)})
	}
	if w.LayerUnits {
		all = append(all, map[string]any{"name": enabledUnit, "enabled": true}, map[string]any{"name": disabledUnit, "enabled": false})
	}
	return all
}

// saying returns a service that can be enabled and prints a text on the console.
func saying(text string) string {
	return "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo \"" + text + "\" >/dev/console'\n[Install]\nWantedBy=multi-user.target\n"
}

// UnitPaths returns the path of the unit's file, if w has one. It does not include the link that
// enables the unit, which pivot computes.
func (w Want) UnitPaths() []string {
	if !w.Unit {
		return nil
	}
	return []string{"/etc/systemd/system/" + unitName}
}

// Wanted returns the target of the main job: B, two kernel arguments, and CPU 0 for management.
func (l *Lab) Wanted() Want {
	set, err := pinning.ParseCPUSet("0")
	if err != nil {
		panic(err) // a constant
	}
	return Want{Image: l.Image, Kargs: []string{"nosmt loglevel=7"}, Pinning: pinning.Workloads{"management": set}}
}

// Encapsulated returns the content of the encapsulated MachineConfig for w, as Ignition writes it.
func (w Want) Encapsulated() ([]byte, error) {
	type object = map[string]any
	files := []object{}
	for _, f := range w.PinningFiles() {
		files = append(files, object{"path": f.Path, "mode": 420, "overwrite": true, "contents": object{"source": dataURL(f.Content)}})
	}
	config := object{"ignition": object{"version": "3.2.0"}}
	if len(files) > 0 {
		config["storage"] = object{"files": files}
	}
	if units := w.units(); len(units) > 0 {
		config["systemd"] = object{"units": units}
	}
	return json.Marshal(object{
		"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
		"metadata": object{"name": "rendered-master-0123456789abcdef0123456789abcdef"},
		"spec": object{
			"osImageURL": w.Image, "baseOSExtensionsContainerImage": w.ExtensionsImage, "config": config,
			"kernelArguments": w.Kargs, "extensions": append([]string{}, w.Extensions...), "fips": false, "kernelType": cmp.Or(w.KernelType, "default"),
		},
	})
}

// PinningFiles returns the pinning files of w.
func (w Want) PinningFiles() []vm.TreeFile {
	if len(w.Pinning) == 0 {
		return nil
	}
	return []vm.TreeFile{
		{Path: pinning.DropInPath, Mode: 0o644, Content: pinning.DropIn(w.Pinning)},
		{Path: pinning.KubeletPath, Mode: 0o644, Content: pinning.KubeletFile(w.Pinning)},
	}
}
