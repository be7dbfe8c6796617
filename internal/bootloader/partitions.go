package bootloader

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// partition is an EFI system partition.
type partition struct {
	Device string
	Files  map[string]string // SHA-256 digests of what is in its directory EFI, by paths in small letters
}

// device is one as lsblk shows it.
type device struct {
	Name     string
	PartType string
	Children []device
}

// isESP reports whether it is an EFI system partition, by its type in a GPT or an MBR. What multipath uses has another device
// for it.
func (d device) isESP() bool {
	kinds := []string{"c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "0xef", "0x6"}
	return slices.Contains(kinds, strings.ToLower(d.PartType)) && len(d.Children) == 0
}

// each calls use with a device and all below it.
func (d device) each(use func(device)) {
	use(d)
	for _, child := range d.Children {
		child.each(use)
	}
}

// partitions reads the EFI system partitions of all disks below /boot, as bootupctl looks for them.
func (t tree) partitions() (all []partition, err error) {
	source, err := t.run("/usr/bin/findmnt", "-n", "-v", "-o", "SOURCE", "--mountpoint", "/boot")
	if err != nil {
		return nil, fmt.Errorf("cannot find the device of /boot: %w", err)
	}
	below, err := t.devices("NAME", "-s", strings.TrimSpace(source))
	if err != nil {
		return nil, err
	}
	var disks, devices []string
	for _, d := range below {
		d.each(func(d device) {
			if len(d.Children) == 0 {
				disks = append(disks, d.Name)
			}
		})
	}
	if len(disks) == 0 { // lsblk would show all that there are
		return nil, fmt.Errorf("cannot find the disks below %s, which /boot is on", strings.TrimSpace(source))
	}
	found, err := t.devices("NAME,PARTTYPE", disks...)
	for _, d := range found {
		d.each(func(d device) {
			if d.isESP() && !slices.Contains(devices, d.Name) {
				devices = append(devices, d.Name)
			}
		})
	}
	if err != nil {
		return nil, err
	}
	for _, name := range devices {
		files, err := t.read(name)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		all = append(all, partition{name, files})
	}
	return all, nil
}

// devices asks lsblk.
func (t tree) devices(columns string, args ...string) ([]device, error) {
	said, err := t.run(append([]string{"/usr/bin/lsblk", "-J", "-p", "-o", columns}, args...)...)
	var list struct{ BlockDevices []device }
	if err == nil {
		err = json.Unmarshal([]byte(said), &list)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the disks below /boot: %w", err)
	}
	return list.BlockDevices, nil
}

// read mounts a partition, and reads what is in its directory EFI. One that the machine has mounted is mounted as it is there.
func (t tree) read(device string) (map[string]string, error) {
	const at = "/tmp/esp"
	dir := filepath.Join(string(t), at)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	said, err := t.run("/usr/bin/mount", "-t", "vfat", "-o", "ro", device, at)
	if err != nil {
		said, err = t.run("/usr/bin/mount", "-t", "vfat", device, at)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, lastLine(said))
	}
	files, err := digestsIn(filepath.Join(dir, "EFI"))
	return files, errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
}

func digestsIn(dir string) (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && file == dir {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err == nil {
			all[strings.ToLower(name)], err = digestOf(file)
		}
		return err
	})
	return all, err
}
