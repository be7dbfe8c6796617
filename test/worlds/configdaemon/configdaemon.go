// Package configdaemon stands in for the machine-config-daemon on a host: it leaves the files that the
// daemon leaves, and makes the checks that the daemon makes when it starts. It is written from the
// behaviour of openshift/machine-config-operator, as of 20 August 2026, in pkg/daemon: file_writers.go,
// on_disk_validation.go, node.go, checkStateOnFirstRun of daemon.go, deleteStaleData of update.go.
package configdaemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
)

// The daemon's files.
const (
	dir              = "/etc/machine-config-daemon"
	CurrentConfig    = dir + "/currentconfig"
	CurrentImage     = dir + "/currentimage"
	NodeAnnotations  = dir + "/node-annotations.json"
	annotationsAfter = dir + "/node-annotation.json.bak"
	units            = "/etc/systemd/system"
)

// Daemon is the daemon of one host.
type Daemon struct {
	Root  string // of the running system
	Image string // that is booted, as its origin names it
	Kargs string // of the boot entry
}

// MachineConfig is a MachineConfig as the daemon reads it.
type MachineConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		OSImageURL      string       `json:"osImageURL"`
		KernelArguments []string     `json:"kernelArguments"`
		Config          types.Config `json:"config"`
	} `json:"spec"`
}

// Parse parses a MachineConfig in JSON.
func Parse(data []byte) (mc MachineConfig, err error) {
	if err = json.Unmarshal(data, &mc); err == nil && (mc.Kind != "MachineConfig" || mc.Metadata.Name == "") {
		err = fmt.Errorf("not a MachineConfig with a name: %.80s", data)
	}
	return mc, err
}

// Install makes the host one of a daemon that has applied a MachineConfig in JSON, without its image and
// kernel arguments.
func (d Daemon) Install(config []byte) error {
	mc, err := Parse(config)
	if err != nil {
		return err
	}
	for _, f := range mc.Spec.Config.Storage.Files {
		err = errors.Join(err, d.writeFile(f))
	}
	for _, u := range mc.Spec.Config.Systemd.Units {
		err = errors.Join(err, d.writeUnit(u))
	}
	return errors.Join(err, d.write(CurrentConfig, config, 0o644), d.write(CurrentImage, nil, 0o644))
}

func (d Daemon) path(path string) string { return filepath.Join(d.Root, path) }

func (d Daemon) write(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(d.path(path)), 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(d.path(path), content, mode), os.Chmod(d.path(path), mode))
}

// Original and NoOriginal are where the daemon keeps what a file has replaced, or that it has replaced
// nothing.
func Original(path string) string   { return dir + "/orig" + path + ".mcdorig" }
func NoOriginal(path string) string { return dir + "/noorig" + path + ".mcdnoorig" }

func (d Daemon) there(path string) bool {
	_, err := os.Stat(d.path(path))
	return err == nil
}

// keep keeps what a file replaces: only a file of the image counts as an original. This host has no rpm.
func (d Daemon) keep(path string) error {
	if !d.there(path) || !d.there("/usr"+path) {
		return d.write(NoOriginal(path), nil, 0o644)
	}
	if d.there(Original(path)) {
		return nil
	}
	content, err := os.ReadFile(d.path(path))
	if err != nil {
		return err
	}
	return d.write(Original(path), content, 0o644)
}

func (d Daemon) writeFile(f types.File) error {
	content, mode, err := contentOf(f)
	if err != nil {
		return err
	}
	return errors.Join(d.keep(f.Path), d.write(f.Path, content, mode))
}

func (d Daemon) writeUnit(u types.Unit) error {
	for _, drop := range u.Dropins {
		if err := d.write(dropIn(u, drop), []byte(text(drop.Contents)), 0o644); err != nil {
			return err
		}
	}
	if text(u.Contents) == "" {
		return nil
	}
	if err := d.write(units+"/"+u.Name, []byte(*u.Contents), 0o644); err != nil || u.Enabled == nil || !*u.Enabled {
		return err
	}
	wants := d.path(units + "/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	return os.Symlink(units+"/"+u.Name, filepath.Join(wants, u.Name))
}

// Remove does what an update does about a file that the next MachineConfig does not have.
func (d Daemon) Remove(path string) error {
	switch {
	case d.there(NoOriginal(path)):
		if err := os.Remove(d.path(NoOriginal(path))); err != nil {
			return err
		}
	case d.there(Original(path)) && d.there("/usr"+path):
		return os.Rename(d.path(Original(path)), d.path(path))
	}
	return os.Remove(d.path(path))
}

// Validate compares the host with a MachineConfig, and returns the first difference.
func (d Daemon) Validate(mc MachineConfig) error {
	if d.Image != mc.Spec.OSImageURL {
		return fmt.Errorf("expected target osImageURL %q, have %q", mc.Spec.OSImageURL, d.Image)
	}
	there := map[string]bool{}
	for _, arg := range strings.Split(d.Kargs, " ") {
		there[arg] = true
	}
	for _, entry := range mc.Spec.KernelArguments {
		for _, arg := range strings.Fields(entry) {
			if !there[arg] {
				return fmt.Errorf("missing expected kernel argument %s", arg)
			}
		}
	}
	for _, f := range mc.Spec.Config.Storage.Files {
		content, mode, err := contentOf(f)
		if err == nil {
			err = d.compare(f.Path, content, mode)
		}
		if err != nil {
			return err
		}
	}
	for _, u := range mc.Spec.Config.Systemd.Units {
		if err := d.validateUnit(u); err != nil {
			return err
		}
	}
	return nil
}

func (d Daemon) validateUnit(u types.Unit) error {
	for _, drop := range u.Dropins {
		if text(drop.Contents) == "" && !d.there(dropIn(u, drop)) {
			continue
		}
		if err := d.compare(dropIn(u, drop), []byte(text(drop.Contents)), 0o644); err != nil {
			return err
		}
	}
	if text(u.Contents) == "" {
		return nil
	}
	if err := d.compare(units+"/"+u.Name, []byte(*u.Contents), 0o644); err != nil {
		return err
	}
	enabled, err := filepath.Glob(d.path(units + "/*/" + u.Name))
	if err == nil && u.Enabled != nil && *u.Enabled != (len(enabled) > 0) {
		err = fmt.Errorf("unit %q: enabled as %q", u.Name, enabled)
	}
	return err
}

// compare compares a file: no link counts as one.
func (d Daemon) compare(path string, content []byte, mode os.FileMode) error {
	info, err := os.Lstat(d.path(path))
	if err != nil {
		return fmt.Errorf("could not stat file %q: %w", path, err)
	}
	if info.Mode() != mode {
		return fmt.Errorf("mode mismatch for file %q: %o", path, info.Mode())
	}
	have, err := os.ReadFile(d.path(path))
	if err == nil && string(have) != string(content) {
		err = fmt.Errorf("content mismatch for file %q", path)
	}
	return err
}

func dropIn(u types.Unit, drop types.Dropin) string { return units + "/" + u.Name + ".d/" + drop.Name }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// contentOf returns the content and the mode of a file with its content in a data URL.
func contentOf(f types.File) ([]byte, os.FileMode, error) {
	mode := os.FileMode(0o644)
	if f.Mode != nil {
		mode = os.FileMode(*f.Mode)
	}
	if text(f.Contents.Source) == "" {
		return nil, mode, nil
	}
	content, err := dataurl.DecodeString(*f.Contents.Source)
	if err != nil {
		return nil, mode, fmt.Errorf("couldn't decode file %q: %w", f.Path, err)
	}
	return content.Data, mode, nil
}

// readCurrent reads the MachineConfig and the image that the host has by the daemon's own record.
func (d Daemon) readCurrent() (mc MachineConfig, image string, err error) {
	data, err := os.ReadFile(d.path(CurrentConfig))
	if err != nil {
		return mc, "", err
	}
	if mc, err = Parse(data); err != nil {
		return mc, "", err
	}
	content, err := os.ReadFile(d.path(CurrentImage))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return mc, strings.TrimSpace(string(content)), err
}
