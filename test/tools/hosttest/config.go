package main

import (
	"context"
	"crypto/sha512"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"machine-pivot/test/worlds/vm"
)

//go:embed report.sh
var reportScript string

// reportUnit runs the script at the end of each boot. A first boot that reboots does not reach it.
const reportUnit = `[Unit]
Description=Say on the second serial port what this boot came to
After=multi-user.target pivot-firstboot.service
[Service]
Type=oneshot
ExecStart=/usr/local/bin/pivot-hosttest
[Install]
WantedBy=multi-user.target
`

type object = map[string]any

// slowed returns a unit of the system's with which a first boot ends, later than usual; systemd ends the second one after
// 30 seconds.
func slowed(unit string) object {
	return object{"name": unit, "dropins": []object{{"name": "50-hosttest.conf", "contents": "[Service]\nExecStartPre=/bin/sleep 20\n"}}}
}

// machineConfig returns a MachineConfig for a case, with the report unit and the files of access.
func machineConfig(c hostCase, access []vm.TreeFile) ([]byte, error) {
	w, units := c.want, []object{{"name": "pivot-hosttest.service", "enabled": true, "contents": reportUnit}}
	if c.slow {
		units = append(units, slowed("coreos-ignition-firstboot-complete.service"), slowed("systemd-machine-id-commit.service"))
	}
	var names []string
	for _, f := range w.PinningFiles() {
		names = append(names, f.Path)
	}
	script := strings.NewReplacer("@MARKER@", marker, "@FILES@", strings.Join(names, " ")).Replace(reportScript)
	all := append(w.PinningFiles(), access...)
	all = append(all, vm.TreeFile{Path: "/usr/local/bin/pivot-hosttest", Mode: 0o755, Content: []byte(script)})
	var files []object
	for _, f := range all {
		source := "data:;base64," + base64.StdEncoding.EncodeToString(f.Content)
		files = append(files, object{"path": f.Path, "mode": int(f.Mode), "overwrite": true, "contents": object{"source": source}})
	}
	return json.Marshal(object{
		"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
		"metadata": object{"name": "50-hosttest", "labels": object{"machineconfiguration.openshift.io/role": role}},
		"spec": object{"kernelArguments": w.Kargs, "config": object{
			"ignition": object{"version": "3.2.0"},
			"storage":  object{"files": files},
			"systemd":  object{"units": units},
		}},
	})
}

const role = "worker"

// ignitionConfig returns the Ignition config that pivotctl renders for a MachineConfig, with pivot
// embedded.
func (s settings) ignitionConfig(ctx context.Context, dir, image string, config []byte) ([]byte, error) {
	file := filepath.Join(dir, "machineconfig.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(s.programs, "pivotctl"), "config", "ignition", "--role", role, "--spec-version", s.version,
		"--os-image-url", image, "--embed-pivot", filepath.Join(s.programs, "pivot"), file).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("cannot make the Ignition config: %w\n%s", err, exit.Stderr)
	}
	return out, err
}

// pointer returns an Ignition config that is replaced by the one served at url. The config itself
// is too large to pass by fw_cfg, which the kernel reads in quadratic time, as Ignition warns.
func pointer(url string, config []byte) ([]byte, error) {
	return json.Marshal(object{"ignition": object{"version": "3.0.0", "config": object{"replace": object{
		"source": url, "verification": object{"hash": fmt.Sprintf("sha512-%x", sha512.Sum512(config))},
	}}}})
}
