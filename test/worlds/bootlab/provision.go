package bootlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"machine-pivot/test/suites/ignition"
	"machine-pivot/test/worlds/vm"
)

// Missing returns what this host lacks for a lab; nothing if it can have one.
func Missing() []string { return append(MissingInBox(), vm.MissingToBoot()...) }

// MissingInBox returns what this host lacks for a lab with machines that boot in boxes, without what a box needs;
// nothing if it can have one.
func MissingInBox() []string {
	missing := vm.MissingToBuild()
	if _, err := os.Stat(ignition.Program); err != nil {
		missing = append(missing, "ignition")
	}
	return missing
}

// Provision returns the files of a new machine with the target w, made as in production: pivotctl renders an Ignition
// config from MachineConfigs, and the real Ignition writes them. The encapsulated MachineConfig among them has no
// files, because Ignition has already written those.
func (l *Lab) Provision(ctx context.Context, w Want) ([]vm.TreeFile, error) {
	dir, err := os.MkdirTemp(l.dir, "provision-*")
	if err != nil {
		return nil, err
	}
	conf, root := filepath.Join(dir, "conf"), filepath.Join(dir, "root")
	if err := errors.Join(os.Mkdir(conf, 0o755), os.Mkdir(root, 0o755)); err != nil {
		return nil, err
	}
	if err := l.writeMachineConfigs(ctx, conf, w); err != nil {
		return nil, err
	}
	// The newest spec version that the Ignition on this host supports.
	config, err := l.program(ctx, "pivotctl", "config", "ignition", "--role", role, "--spec-version", "3.3.0", "--os-image-url", w.Image, conf)
	if err != nil {
		return nil, err
	}
	if err := ignition.Apply(ctx, config, root); err != nil {
		return nil, err
	}
	return vm.TreeFiles(root)
}

// role is the role of the lab's machines.
const role = "master"

// writeMachineConfigs writes separate MachineConfigs for w's kernel arguments and for its pinning. The
// image is set when they are rendered.
func (l *Lab) writeMachineConfigs(ctx context.Context, dir string, w Want) error {
	type object = map[string]any
	arguments, err := json.Marshal(object{
		"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
		"metadata": object{"name": "50-kernel-arguments", "labels": object{"machineconfiguration.openshift.io/role": role}},
		"spec":     object{"kernelArguments": w.Kargs},
	})
	if err != nil {
		return err
	}
	generate := []string{"pinning", "generate", "--role", role}
	for _, workload := range w.Pinning.Names() {
		generate = append(generate, "--cpuset", workload+"="+w.Pinning[workload].String())
	}
	partition, err := l.program(ctx, "pivotctl", generate...)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "kernel-arguments.json"), arguments, 0o644),
		os.WriteFile(filepath.Join(dir, "pinning.yaml"), partition, 0o644))
}

// program runs pivot or pivotctl on the host and returns the output.
func (l *Lab) program(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(l.shared.bin, name), args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, args[:2], err, exit.Stderr)
	}
	return out, err
}
