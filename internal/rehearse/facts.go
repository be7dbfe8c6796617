package rehearse

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Facts are what a machine needs of the system that it starts, as the running system shows it.
type Facts struct {
	Devices     []Device     `json:"devices"`
	FileSystems []FileSystem `json:"fileSystems"`
	Interfaces  []string     `json:"interfaces"` // names of the network interfaces that are up
	// Today is what the running system's initramfs has; nil: it is read when it is needed.
	Today *Initramfs `json:"today,omitempty"`
}

// Initramfs is what an initramfs has of what is asked about it.
type Initramfs struct {
	Modules []string `json:"modules"` // that serve something today, in it or built into the kernel
	Dracut  []string `json:"dracut"`  // dracut's modules
}

// Device is a device with a driver, or a file system, which the machine needs to start.
type Device struct {
	Alias   string   `json:"alias"`   // by which the kernel asks modprobe for a driver
	Below   string   `json:"below"`   // the mount point that stands on it, or the network interface that it is
	Modules []string `json:"modules"` // that serve it in the running system
}

// FileSystem is a file system on a device, which is mounted now, and so at the next boot.
type FileSystem struct {
	At         string   `json:"at"` // its mount point; "/" for the one that the deployments are on
	Type       string   `json:"type"`
	Modules    []string `json:"modules"`              // that serve it in the running system
	Superblock []byte   `json:"superblock,omitempty"` // of ext4 and XFS
	// Unlocked has the pins of each encrypted disk that it stands on and that has some.
	Unlocked [][]Pin `json:"unlocked,omitempty"`
	// On are what its devices are made by, from the top, as dracut calls the module for it: crypt, lvm, mdraid, multipath, iscsi, nvmf, clevis…
	On []string `json:"on"`
}

// vital reports whether a system that cannot mount it does not start: it ends in the emergency shell.
func (f FileSystem) vital() bool { return slices.Contains([]string{"/", "/boot", "/var"}, f.At) }

// superblock returns the first bytes and the number of bytes that have the description of a file system; 0 if it is not needed.
func superblock(kind string) (from, size int64) {
	switch kind {
	case "ext2", "ext3", "ext4":
		return 1024, 1024
	case "xfs":
		return 0, 512
	}
	return 0, 0
}

// Read returns the facts of the machine at root. answer returns what serves an alias or a name in the running system,
// by modprobe's answer. Without an answer, nothing is judged. targets returns what maps a device of the device mapper, given
// by its numbers, in the kernel's words.
func Read(root string, answer, targets func(string) []string) Facts {
	modules := func(alias string) []string { return once(answer(alias)) }
	f := Facts{Devices: []Device{}, FileSystems: []FileSystem{}, Interfaces: []string{}}
	for _, m := range mounts(root) {
		under := stack{sys: filepath.Join(root, "sys"), targets: targets}
		under.follow("dev/block/" + m.device)
		fs := FileSystem{At: m.at, Type: m.kind, On: append([]string{}, under.kinds...), Superblock: readSuperblock(filepath.Join(root, "dev/block", m.device), m.kind)}
		for _, device := range under.encrypted {
			if pins := readPins(filepath.Join(root, "dev/block", device)); len(pins) > 0 {
				fs.Unlocked = append(fs.Unlocked, pins)
			}
		}
		for _, pin := range slices.Concat(fs.Unlocked...) {
			for _, kind := range pin.kinds() {
				if !slices.Contains(fs.On, kind) {
					fs.On = append(fs.On, kind)
				}
			}
		}
		fs.Modules = servedBy(m.kind, modules)
		f.FileSystems = append(f.FileSystems, fs)
		if fs.vital() {
			f.add(m.at, under.aliases)
		}
	}
	for _, m := range unmounted(root, f.FileSystems) {
		f.FileSystems = append(f.FileSystems, FileSystem{At: m.at, Type: m.kind, On: []string{}, Modules: servedBy(m.kind, modules)})
	}
	up, _ := filepath.Glob(filepath.Join(root, "sys/class/net/*/device"))
	for _, link := range up {
		name := filepath.Base(filepath.Dir(link))
		if state, err := os.ReadFile(filepath.Join(filepath.Dir(link), "operstate")); err == nil && strings.TrimSpace(string(state)) == "up" {
			under := stack{sys: filepath.Join(root, "sys"), targets: targets}
			under.follow("class/net/" + name)
			f.add("network interface "+name, under.aliases)
			f.Interfaces = append(f.Interfaces, name)
		}
	}
	for i := range f.Devices {
		f.Devices[i].Modules = modules(f.Devices[i].Alias)
	}
	return f
}

// servedBy returns the modules for a type of file system.
func servedBy(kind string, modules func(alias string) []string) []string {
	if names := modules("fs-" + kind); len(names) > 0 {
		return names
	}
	return modules(kind) // the tables of built-in drivers have no aliases before Linux 6.18
}

// add adds devices with drivers that are not there yet.
func (f *Facts) add(below string, aliases []string) {
	for _, alias := range aliases {
		if !slices.ContainsFunc(f.Devices, func(d Device) bool { return d.Alias == alias }) {
			f.Devices = append(f.Devices, Device{Alias: alias, Below: below})
		}
	}
}

// mount is a file system that is mounted.
type mount struct{ at, kind, device string }

// mounts returns the file systems on devices, each with the mount point that says most about it: a deployment's directories
// are parts of the file system at /sysroot. Those with the mount points of a machine at another root are seen from there.
func mounts(root string) (all []mount) {
	table, err := os.Open(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	defer table.Close()
	for lines := bufio.NewScanner(io.LimitReader(table, 16<<20)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		dash := slices.Index(fields, "-")
		if dash < 6 || len(fields) < dash+3 {
			continue
		}
		at, below := fields[4], strings.HasPrefix(fields[4]+"/", filepath.Clean(root)+"/")
		m := mount{kind: fields[dash+1], device: blockDevice(root, fields[2], fields[dash+2])}
		if m.device == "" || root != "/" && !below {
			continue
		}
		if m.at = filepath.Join("/", strings.TrimPrefix(at, filepath.Clean(root))); m.at == "/sysroot" {
			m.at = "/"
		}
		if strings.HasPrefix(m.at, "/run/") || strings.HasPrefix(m.at, "/var/lib/kubelet/") {
			continue // volumes of pods and media, of which there may be hundreds: they are not mounted at boot
		}
		other := slices.IndexFunc(all, func(o mount) bool { return o.device == m.device })
		if other < 0 {
			all = append(all, m)
		} else if rank(m.at) > rank(all[other].at) {
			all[other] = m
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return rank(all[i].at) > rank(all[j].at) }) // what / and others stand on counts for /
	return all
}

// unmounted returns the file systems of /etc/fstab that the next boot or the first access mounts, and that no device
// has mounted now: network ones, and those without their device.
func unmounted(root string, mounted []FileSystem) (all []mount) {
	table, err := os.ReadFile(filepath.Join(root, "etc/fstab"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || strings.HasPrefix(fields[0], "#") || slices.Contains([]string{"auto", "none", "swap"}, fields[2]) {
			continue
		}
		options := strings.Split(fields[3], ",")
		skipped := slices.Contains(options, "noauto") && !slices.Contains(options, "x-systemd.automount")
		known := slices.ContainsFunc(mounted, func(f FileSystem) bool { return f.At == fields[1] })
		if !skipped && !known {
			all = append(all, mount{at: fields[1], kind: fields[2]})
		}
	}
	return all
}

// rank orders mount points of one file system.
func rank(at string) int { return slices.Index([]string{"/var", "/boot", "/"}, at) }

// blockDevice returns the numbers of the device of a mount; "" if it has none. btrfs numbers its file systems itself.
func blockDevice(root, numbers, source string) string {
	if !strings.HasPrefix(numbers, "0:") {
		return numbers
	}
	var st unix.Stat_t
	if !strings.HasPrefix(source, "/dev/") || unix.Stat(filepath.Join(root, source), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// readSuperblock returns the description of a file system; nil if it cannot be read, or is not needed.
func readSuperblock(device, kind string) []byte {
	from, size := superblock(kind)
	if size == 0 {
		return nil
	}
	disk, err := os.Open(device)
	if err != nil {
		return nil
	}
	defer disk.Close()
	block := make([]byte, size)
	if _, err := disk.ReadAt(block, from); err != nil {
		return nil
	}
	return block
}
