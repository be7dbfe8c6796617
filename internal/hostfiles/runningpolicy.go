package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// RunningPolicy queries the running kernel's SELinux through selinuxfs (the kernel's
// Documentation/ABI; libselinux's security_check_context and security_compute_av).
type RunningPolicy struct {
	Dir  string // selinuxfs: /sys/fs/selinux
	Self string // the file with the process's label: /proc/self/attr/current
}

// RunningPolicyIn returns the RunningPolicy of the system with the given root directory.
func RunningPolicyIn(root string) RunningPolicy {
	return RunningPolicy{Dir: filepath.Join(root, "sys/fs/selinux"), Self: filepath.Join(root, "proc/self/attr/current")}
}

// Loaded reports whether a policy is loaded.
func (k RunningPolicy) Loaded() bool {
	_, err := os.Stat(filepath.Join(k.Dir, "enforce"))
	return err == nil
}

// ErrUnknownLabel is returned for a label that cannot be stored because the running policy does not
// know it.
var ErrUnknownLabel = errors.New("the running SELinux policy does not know the label, and does not let this program store what it does not know")

// Check returns ErrUnknownLabel if this process cannot set a label because the policy does not know
// it. It queries the policy instead of trying, since a failed attempt would be logged as a
// denial.
func (k RunningPolicy) Check(label string) error {
	if k.Knows(label) {
		return nil
	}
	if may, err := k.StoresUnknown(); may || err != nil {
		return nil
	}
	return ErrUnknownLabel
}

// Knows reports whether the policy knows a label. It also returns true if no policy is loaded,
// or if the policy does not allow the query; in that case storing the label may still fail.
func (k RunningPolicy) Knows(label string) bool {
	if !k.Loaded() {
		return true
	}
	file, err := os.OpenFile(filepath.Join(k.Dir, "context"), os.O_RDWR, 0)
	if err != nil {
		return true
	}
	defer file.Close()
	_, err = file.WriteString(label + "\x00")
	return !errors.Is(err, unix.EINVAL)
}

// StoresUnknown reports whether this process may store labels that the policy does not know,
// because it has the permission mac_admin or the policy is not enforced.
func (k RunningPolicy) StoresUnknown() (bool, error) {
	enforce, err := k.number("enforce")
	if err != nil || enforce == 0 {
		return err == nil, err
	}
	class, err := k.number("class/capability2/index")
	if err != nil {
		return false, err
	}
	permission, err := k.number("class/capability2/perms/mac_admin")
	if err != nil {
		return false, err
	}
	allowed, err := k.allowed(class)
	return allowed&(1<<(permission-1)) != 0, err
}

// allowed returns the permissions, as a bit set, that this process has for a class on its own
// label. In a permissive domain these are all.
func (k RunningPolicy) allowed(class uint64) (uint64, error) {
	self, err := os.ReadFile(k.Self)
	if err != nil {
		return 0, fmt.Errorf("cannot ask SELinux: %w", err)
	}
	label := strings.TrimRight(string(self), "\x00\n")
	file, err := os.OpenFile(filepath.Join(k.Dir, "access"), os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("cannot ask SELinux: %w", err)
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, "%s %s %d", label, label, class); err != nil {
		return 0, fmt.Errorf("cannot ask SELinux: %w", err)
	}
	answer := make([]byte, 4096)
	n, err := file.Read(answer)
	if err != nil {
		return 0, fmt.Errorf("cannot ask SELinux: %w", err)
	}
	fields := strings.Fields(string(answer[:n])) // allowed, four others, flags
	if len(fields) < 1 {
		return 0, fmt.Errorf("cannot ask SELinux: it says %q", answer[:n])
	}
	const permissive = "1" // the flag of a permissive domain
	if len(fields) > 5 && fields[5] == permissive {
		return ^uint64(0), nil
	}
	return strconv.ParseUint(fields[0], 16, 64)
}

// number reads a file that contains a decimal number.
func (k RunningPolicy) number(name string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(k.Dir, name))
	if err != nil {
		return 0, fmt.Errorf("cannot ask SELinux: %w", err)
	}
	number, err := strconv.ParseUint(strings.TrimRight(string(text), "\x00\n"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot ask SELinux: %s: %w", name, err)
	}
	return number, nil
}

// UnknownLabelHint explains how to resolve ErrUnknownLabel.
const UnknownLabelHint = "the new system's SELinux policy is newer than the running one: give the program /usr/bin/pivot a type that may store such labels, " +
	"as install_exec_t (semodule -i /usr/share/selinux/packages/pivot.cil, then restorecon /usr/bin/pivot), or have the first boot done in the initramfs, which may (pivot.mode=initramfs)"
