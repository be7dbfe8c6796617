package rehearse

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// stack is what a device stands on: through partitions, device mapper and md, down to the bus.
type stack struct {
	sys     string                        // path of sysfs
	targets func(numbers string) []string // see Read
	aliases []string                      // of the devices with a driver
	kinds   []string                      // see FileSystem.On
	// encrypted are the numbers of the devices that have the headers of LUKS.
	encrypted []string
}

// follow adds what a device below sysfs is part of, or made from.
func (s *stack) follow(device string) {
	top, err := filepath.EvalSymlinks(s.sys)
	if err != nil {
		return
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(top, device))
	for ; err == nil && strings.HasPrefix(dir, top+"/"); dir = filepath.Dir(dir) {
		kind := kindOf(dir)
		if kind != "" && !slices.Contains(s.kinds, kind) {
			s.kinds = append(s.kinds, kind)
		}
		if alias := made(dir, kind); alias != "" {
			s.aliases = append(s.aliases, alias)
		}
		s.aliases = append(s.aliases, s.mapped(dir)...)
		parts, _ := filepath.Glob(filepath.Join(dir, "slaves/*"))
		for _, part := range parts {
			if numbers, err := os.ReadFile(filepath.Join(part, "dev")); err == nil && kind == "crypt" {
				s.encrypted = append(s.encrypted, strings.TrimSpace(string(numbers)))
			}
			s.follow(strings.TrimPrefix(part, top))
		}
		if _, err := os.Readlink(filepath.Join(dir, "driver")); err != nil {
			continue
		}
		if alias, err := os.ReadFile(filepath.Join(dir, "modalias")); err == nil {
			s.aliases = append(s.aliases, strings.TrimSpace(string(alias)))
		}
	}
}

// made returns the name by which the kernel asks modprobe for the driver of a device that it makes of others; "" for another device.
func made(dir, kind string) string {
	switch kind {
	case "crypt", "multipath":
		return "dm-" + kind
	case "lvm":
		return "dm-mod"
	case "mdraid":
		level, _ := os.ReadFile(filepath.Join(dir, "md/level")) // nothing serves "md-"
		return "md-" + strings.TrimSpace(string(level))
	}
	return ""
}

// mapped returns the names by which the kernel asks modprobe for what maps a device of the device mapper. Of LVM, a thin pool, a
// cache or a mirror has a driver of its own.
func (s *stack) mapped(dir string) (aliases []string) {
	if _, err := os.Stat(filepath.Join(dir, "dm")); err != nil {
		return nil
	}
	numbers, _ := os.ReadFile(filepath.Join(dir, "dev"))
	for _, kind := range s.targets(strings.TrimSpace(string(numbers))) {
		aliases = append(aliases, "dm-"+kind)
	}
	return aliases
}

// iscsiSession matches the directory of an iSCSI session, which the disks are below.
var iscsiSession = regexp.MustCompile(`^session[0-9]+$`)

// kindOf returns what makes the device of a directory, as dracut calls the module for it; "" if the kernel does it alone.
func kindOf(dir string) string {
	if uuid, err := os.ReadFile(filepath.Join(dir, "dm/uuid")); err == nil {
		for prefix, kind := range map[string]string{"CRYPT-LUKS": "crypt", "LVM-": "lvm", "mpath-": "multipath"} {
			if strings.HasPrefix(string(uuid), prefix) {
				return kind
			}
		}
	}
	name := filepath.Base(dir)
	switch _, err := os.Stat(filepath.Join(dir, "md")); {
	case err == nil:
		return "mdraid"
	case iscsiSession.MatchString(name):
		return "iscsi"
	case name == "nvme-fabrics":
		return "nvmf"
	}
	return ""
}
