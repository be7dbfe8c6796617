package hostdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Policy gives the running system an SELinux policy with the given lines of file_contexts(5). The
// kernel supports SELinux but has no policy loaded.
func (h *Host) Policy(lines ...string) {
	h.t.Helper()
	h.Write("/etc/selinux/config", []byte("# SELINUX=disabled\nSELINUX=enforcing\nSELINUXTYPE=targeted\n"))
	h.Write("/etc/selinux/targeted/contexts/files/file_contexts", []byte("/ -d system_u:object_r:root_t:s0\n"+strings.Join(lines, "\n")+"\n"))
	h.Write("/etc/selinux/targeted/policy/policy.33", nil) // libostree requires it
	h.Write("/proc/filesystems", []byte("nodev\tsysfs\nnodev\tselinuxfs\n\text4\n"))
}

// LoadedPolicy makes the kernel look as if a policy without any label was loaded. permissions is
// the hexadecimal mask of the process's capability2 permissions, of which mac_admin is the first.
func (h *Host) LoadedPolicy(enforcing bool, permissions string) {
	h.t.Helper()
	const dir, self = "/sys/fs/selinux/", "system_u:system_r:initrc_t:s0"
	h.Write("/proc/self/attr/current", []byte(self+"\x00"))
	h.Write(dir+"enforce", map[bool][]byte{true: []byte("1"), false: []byte("0")}[enforcing])
	h.Write(dir+"class/capability2/index", []byte("69"))
	h.Write(dir+"class/capability2/perms/mac_admin", []byte("1"))
	// The answer follows at the offset where the written query ends.
	question := fmt.Sprintf("%s %s 69", self, self)
	h.Write(dir+"access", []byte(strings.Repeat(" ", len(question))+permissions+" ffffffff 0 ffffffff 1 0"))
	// Stands in for a kernel file that rejects labels: it accepts only numbers, and returns EINVAL
	// for all else.
	err := os.Symlink("/proc/self/oom_score_adj", h.Path(dir+"context"))
	if !errors.Is(err, fs.ErrExist) {
		h.must(err)
	}
}
