package provision

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"debug/elf"
	"encoding/base64"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/kargs"
	systemdunits "machine-pivot/systemd-units"
)

// embeddedPath is the path of an embedded program. On the intended hosts /usr is read-only except
// /usr/local, which is in /var and persists when the OS changes.
const embeddedPath = "/usr/local/bin/pivot"

// Embed returns the config that writes the program, compressed, and the units that start it, for machines with a boot
// image that does not have them.
func Embed(program []byte) (ignition.Config, error) {
	if err := runsAnywhere(program); err != nil {
		return ignition.Config{}, fault.New(fault.BadInput, "cannot embed the program: %w", err).
			WithHint("embed the static pivot that `make build` makes, for the machines' architecture")
	}
	config := ignition.Empty()
	config.Storage.Files = append(config.Storage.Files, programFile(program))
	units, err := units()
	if err != nil {
		return ignition.Config{}, fault.New(fault.Internal, "cannot embed the units: %w", err)
	}
	config.Systemd.Units = units
	return config, nil
}

// KargPolicy returns the config that writes the policy for kernel arguments, because the first boot
// checks the arguments again, and would refuse by the built-in policy what this one allows.
func KargPolicy(text []byte) ignition.Config {
	config := ignition.Empty()
	config.Storage.Files = append(config.Storage.Files, ignition.NewFile(kargs.PolicyPath, 0o644, text))
	return config
}

// runsAnywhere returns an error unless the program is a static binary for Linux.
func runsAnywhere(program []byte) error {
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("it is no program for Linux: %w", err)
	}
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return fmt.Errorf("it wants a dynamic loader")
	}
	return nil
}

func programFile(program []byte) ignition.File {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(program)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic(err) // the level exists and memory takes everything
	}
	f := ignition.NewFile(embeddedPath, 0o755, nil)
	f.Contents = ignition.Resource{Source: new("data:;base64," + base64.StdEncoding.EncodeToString(packed.Bytes())), Compression: new("gzip")}
	f.Contents.Verification.Hash = new(fmt.Sprintf("sha512-%x", sha512.Sum512(program))) // every version supports SHA-512
	return f
}

// units returns the units, changed to start the program at its embedded path, and the drop-ins.
func units() ([]ignition.Unit, error) {
	var all []ignition.Unit
	err := fs.WalkDir(systemdunits.Files, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || file == systemdunits.Upgrade || file == systemdunits.UpgradeTimer { // an administrator's
			return err
		}
		text, err := fs.ReadFile(systemdunits.Files, file)
		if err != nil {
			return err
		}
		contents := strings.ReplaceAll(string(text), systemdunits.Program+" ", embeddedPath+" ")
		if of, ok := strings.CutSuffix(path.Dir(file), ".d"); ok {
			all = append(all, ignition.Unit{Name: of, Dropins: []ignition.DropIn{{Name: path.Base(file), Contents: &contents}}})
			return nil
		}
		all = append(all, ignition.Unit{Name: file, Enabled: new(true), Contents: &contents})
		return nil
	})
	return all, err
}
