// Command actor is bootupctl, and the programs of util-linux that it and pivot ask, in the tree of a system in the tests. Disks are
// directories of /boot: disk*/esp is an EFI system partition. /etc/act/bootupctl says what goes wrong.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	programs := map[string]func([]string) error{"findmnt": findmnt, "lsblk": lsblk, "mount": mount, "bootupctl": bootupctl}
	if err := programs[filepath.Base(os.Args[0])](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func findmnt(args []string) error {
	if !slices.Equal(args, []string{"-n", "-v", "-o", "SOURCE", "--mountpoint", "/boot"}) {
		return fmt.Errorf("the arguments of findmnt are %q", args)
	}
	fmt.Println("/boot/md")
	return nil
}

type device struct {
	Name     string   `json:"name"`
	PartType *string  `json:"parttype"`
	Children []device `json:"children,omitempty"`
}

func lsblk(args []string) error {
	if len(args) < 5 || !slices.Equal(args[:3], []string{"-J", "-p", "-o"}) {
		return fmt.Errorf("the arguments of lsblk are %q", args)
	}
	var all []device
	disks, _ := filepath.Glob("/boot/disk*")
	if args[4] == "-s" && args[5] == "/boot/md" {
		md := device{Name: "/boot/md"}
		for _, disk := range disks {
			md.Children = append(md.Children, device{Name: disk + "/boot", Children: []device{{Name: disk}}})
		}
		all = []device{md}
	}
	esp, other := "C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "0fc63daf-8483-4772-8e79-3d69d8477de4"
	for _, disk := range args[4:] {
		if slices.Contains(disks, disk) {
			all = append(all, device{Name: disk, Children: []device{{Name: disk + "/esp", PartType: &esp},
				{Name: disk + "/boot", PartType: &other, Children: []device{{Name: "/boot/md"}}}}})
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string][]device{"blockdevices": all})
}

func mount(args []string) error {
	_, err := os.Stat("/boot/mounted") // by the machine, to be written
	switch {
	case len(args) == 3 && args[0] == "-o" && args[1] == "remount,rw,sync":
		return os.WriteFile("/run/sync-"+filepath.Base(args[2]), nil, 0o644)
	case len(args) == 6 && slices.Equal(args[:4], []string{"-t", "vfat", "-o", "ro"}) && err == nil:
		return syscall.EBUSY
	case len(args) == 6 && slices.Equal(args[:4], []string{"-t", "vfat", "-o", "ro"}), len(args) == 4 && slices.Equal(args[:2], []string{"-t", "vfat"}) && err == nil:
		return syscall.Mount(args[len(args)-2], args[len(args)-1], "", syscall.MS_BIND, "")
	}
	return fmt.Errorf("the arguments of mount are %q", args)
}

// bootupctl does what the real one needs, and writes as it does: beside, and then in one rename each.
func bootupctl(args []string) error {
	if !slices.Equal(args, []string{"update"}) || os.Getenv("INVOCATION_ID") == "" || os.Getuid() != 0 {
		return fmt.Errorf("arguments %q, INVOCATION_ID %q, user %d", args, os.Getenv("INVOCATION_ID"), os.Getuid())
	}
	for _, needed := range []string{"/boot/grub2", "/sys/class/block", "/dev/null", "/proc/self/mountinfo", "/sysroot/ostree/repo", "/tmp", "/run"} {
		if _, err := os.Stat(needed); err != nil {
			return err
		}
	}
	for _, partition := range []string{"esp0", "esp1"} {
		if _, err := os.Stat("/run/sync-" + partition); err != nil {
			return err
		}
	}
	wrong, _ := os.ReadFile("/etc/act/bootupctl")
	if string(wrong) == "old" {
		fmt.Println("No update available for any component.")
		return nil
	}
	disks, err := filepath.Glob("/boot/disk*/esp/EFI")
	for i, efi := range disks {
		if string(wrong) == "dies" && i > 0 {
			if _, err := os.Stat("/boot/died"); err != nil { // once
				return errors.Join(os.WriteFile("/boot/died", nil, 0o644), errors.New("the second disk does not answer"))
			}
		}
		err = errors.Join(err, update(efi))
	}
	fmt.Println("Updated EFI: the image's")
	return errors.Join(err, os.WriteFile("/boot/bootupd-state.json", []byte("{}"), 0o644))
}

func update(efi string) error {
	files, err := filepath.Glob("/usr/lib/efi/*/*/EFI/*/*")
	for _, file := range files {
		component, name, _ := strings.Cut(strings.TrimPrefix(file, "/usr/lib/efi/"), "/EFI/")
		if other := path.Dir(component); other == "grub-cc" || other == "systemd-boot" {
			continue // the firmware's LoaderInfo names none of them
		}
		content, rerr := os.ReadFile(file)
		at := filepath.Join(efi, name)
		others, _ := filepath.Glob(filepath.Dir(at) + "/*")
		for _, other := range others { // which is the same to FAT
			if strings.EqualFold(other, at) {
				err = errors.Join(err, os.Remove(other))
			}
		}
		err = errors.Join(err, rerr, os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at+".btmp", content, 0o644), os.Rename(at+".btmp", at))
	}
	return err
}
