// Package lab is a small world for whole first boots: an OS A and its successor
// B as bootable guests, a registry over TLS that serves B as an OS image, and
// disks that boot A as Ignition leaves it, or with a given encapsulated
// MachineConfig. The end-to-end tests and the demonstration use it.
package lab

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
	"machine-pivot/test/oscontainer"
	"machine-pivot/test/registry"
	"machine-pivot/test/vm"
)

// Lab is one such world. Close it.
type Lab struct {
	Guest    *vm.Guest
	Registry *registry.Registry
	Image    string // reference of B, as the guest names it, by digest
	selinux  vm.SELinux
	dir      string
	shared   shared
}

// shared is what worlds have in common that were made of one.
type shared struct {
	bin   string   // the directory of pivot and pivotctl, for this machine
	blobs string   // the directory of the registries' blobs
	image v1.Image // B
}

// GuestHost is the address under which a guest reaches this machine.
const GuestHost = "10.0.2.2"

// New builds what is missing and starts the registry. source is the root of
// this project's checkout.
func New(ctx context.Context, source string, log io.Writer) (*Lab, error) {
	return NewOf(ctx, source, vm.GuestSpec{}, log)
}

// NewOf is New with guests as spec says, on which pivot is installed.
func NewOf(ctx context.Context, source string, spec vm.GuestSpec, log io.Writer) (_ *Lab, err error) {
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
	installed, err := Install(ctx, source, dest)
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

// Alone is the same world with a registry and a directory of its own: what is done to
// the one is not seen in the other. Close it before the world that it was made of.
func (l *Lab) Alone(ctx context.Context) (_ *Lab, err error) {
	own := &Lab{Guest: l.Guest, selinux: l.selinux, shared: l.shared}
	if own.dir, err = os.MkdirTemp(l.dir, "alone-*"); err != nil {
		return nil, err
	}
	if err := own.serve(ctx); err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return own, nil
}

// builtSuffix is what the directory in which programs were built has behind the name of
// the one into which they were installed.
const builtSuffix = ".built"

// Install runs the project's own installation into the directory dest, enables the unit
// as an image's build does, and returns the files.
func Install(ctx context.Context, source, dest string) ([]vm.TreeFile, error) {
	// Its own BIN: another world may be installing at the same time.
	for _, argv := range [][]string{
		{"make", "-s", "-C", source, "build", "install-host", "DESTDIR=" + dest, "BIN=" + dest + builtSuffix},
		{"systemctl", "-q", "--root=" + dest, "preset", "pivot-firstboot.service", "pivot-live.service", "pivot-project.service", "pivot-slot.service", "pivot-trial.service"},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("cannot install pivot: %w\n%s", err, out)
		}
	}
	return vm.TreeFiles(dest)
}

// serve starts the registry and puts B into it.
func (l *Lab) serve(ctx context.Context) (err error) {
	if l.Registry, err = registry.Start(registry.Options{Dir: l.shared.blobs}); err != nil {
		return err
	}
	l.Image, err = l.push(ctx, "machine-os-content", l.shared.image)
	return err
}

// Close stops the registry and removes what is not worth keeping.
func (l *Lab) Close() error {
	var err error
	if l.Registry != nil {
		err = l.Registry.Close()
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}

// Want is what a MachineConfig asks for.
type Want struct {
	Image   string
	Kargs   []string
	Pinning pinning.Workloads
	// KernelType is "" for the default one. ExtensionsImage has its packages and the extensions'.
	KernelType, ExtensionsImage string
	Extensions                  []string

	Unit bool // a systemd unit, too, which is enabled and says on the console that it runs
	// LayerUnits asks for the one unit of the derived layers that they do not enable, and not
	// for the one that they do.
	LayerUnits bool
}

// The unit that a Want may have, and what it says.
const (
	unitName = "lab-unit.service"
	UnitSays = "@@unit " + unitName + " runs"
)

// units are the units in an Ignition config.
func (w Want) units() (all []map[string]any) {
	if w.Unit {
		all = append(all, map[string]any{"name": unitName, "enabled": true, "contents": saying(UnitSays)})
	}
	if w.LayerUnits {
		all = append(all, map[string]any{"name": enabledUnit, "enabled": true}, map[string]any{"name": disabledUnit, "enabled": false})
	}
	return all
}

// saying is a service that says something on the console, once it is enabled.
func saying(text string) string {
	return "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo \"" + text + "\" >/dev/console'\n[Install]\nWantedBy=multi-user.target\n"
}

// UnitPaths are the paths of the unit's file; the link that enables it is worked out.
func (w Want) UnitPaths() []string {
	if !w.Unit {
		return nil
	}
	return []string{"/etc/systemd/system/" + unitName}
}

// Wanted is the main job: B, two kernel arguments, and CPU 0 for management.
func (l *Lab) Wanted() Want {
	set, err := pinning.ParseCPUSet("0")
	if err != nil {
		panic(err) // a constant
	}
	return Want{Image: l.Image, Kargs: []string{"nosmt loglevel=7"}, Pinning: pinning.Workloads{"management": set}}
}

// Encapsulated is the file that Ignition leaves, asking for w.
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

// PinningFiles are the files that w asks for.
func (w Want) PinningFiles() []vm.TreeFile {
	if len(w.Pinning) == 0 {
		return nil
	}
	return []vm.TreeFile{
		{Path: pinning.DropInPath, Mode: 0o644, Content: pinning.DropIn(w.Pinning)},
		{Path: pinning.KubeletPath, Mode: 0o644, Content: pinning.KubeletFile(w.Pinning)},
	}
}
