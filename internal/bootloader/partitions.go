package bootloader

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// find returns the devices of the EFI system partitions of all disks below /boot, as bootupctl looks for them.
func (t tree) find() (all []string, err error) {
	source, err := t.run("/usr/bin/findmnt", "-n", "-v", "-o", "SOURCE", "--mountpoint", "/boot")
	if err != nil {
		return nil, fmt.Errorf("cannot find the device of /boot: %w", err)
	}
	below, err := t.devices("NAME", "-s", strings.TrimSpace(source))
	if err != nil {
		return nil, err
	}
	var disks []string
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
			if d.isESP() && !slices.Contains(all, d.Name) {
				all = append(all, d.Name)
			}
		})
	}
	return all, err
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

// mountAll mounts the EFI system partitions, and returns where, by their devices.
//
// The rule: before an update each one is mounted so that what is written is on the disk before the next write, and stays mounted.
// bootupctl writes its files, renames a directory, and only then syncs: after a loss of power, the disk might have the new name,
// and not what it names. A mount that bootupctl makes itself, or that the machine has, has the same options from then on.
func (t tree) mountAll(update bool) (map[string]string, error) {
	devices, err := t.find()
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for i, device := range devices {
		at := fmt.Sprintf("/tmp/esp%d", i)
		all[device] = filepath.Join(string(t), at)
		if err := t.mount(device, at, update); err != nil {
			return nil, fmt.Errorf("cannot mount %s: %w", device, err)
		}
	}
	return all, nil
}

func (t tree) mount(device, at string, update bool) error {
	if err := os.MkdirAll(filepath.Join(string(t), at), 0o755); err != nil {
		return err
	}
	const mount = "/usr/bin/mount"
	said, err := t.run(mount, "-t", "vfat", "-o", "ro", device, at)
	if err != nil { // the machine has mounted it to be written
		said, err = t.run(mount, "-t", "vfat", device, at)
	}
	if err == nil && update {
		said, err = t.run(mount, "-o", "remount,rw,sync", at)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, lastLine(said))
	}
	return err
}

// readAll reads what is in the directories EFI of mounted partitions.
func readAll(mounted map[string]string) (all []partition, err error) {
	for _, device := range slices.Sorted(maps.Keys(mounted)) {
		files, err := digestsIn(filepath.Join(mounted[device], "EFI"))
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", device, err)
		}
		all = append(all, partition{device, files})
	}
	return all, nil
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
