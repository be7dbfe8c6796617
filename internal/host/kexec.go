package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/secureboot"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// Kernel is a kernel that can be started without firmware and boot loader.
type Kernel struct {
	Image   string // path of the kernel
	Initrd  string // path of the initramfs; "" if none
	Cmdline string
}

// Files that show which kernels the machine lets be started (the kernel's
// admin-guide/sysctl/kernel, security/lockdown.c; UEFI 2.10, 3.3).
const (
	loadDisabledPath = "/proc/sys/kernel/kexec_load_disabled"
	securityPath     = "/sys/kernel/security"
	lockdownPath     = securityPath + "/lockdown"
	efiPath          = "/sys/firmware/efi"
)

// ignitionStamp is the path of the stamp without which kargs.IgnitionVariable is empty.
const ignitionStamp = "/boot/" + hostfiles.IgnitionStamp

// NextKernel returns what the next boot starts by default: the kernel of the default boot entry
// with the arguments that the boot loader would pass. The error says why kexec cannot start it.
func (h *Host) NextKernel() (Kernel, error) {
	next, err := h.Sysroot().Default()
	if err != nil {
		return Kernel{}, err
	}
	return h.KernelOf(next)
}

// KernelOf is NextKernel for a deployment that need not be the default. Its boot entry must have been read for this try
// to start it.
func (h *Host) KernelOf(d ostree.Deployment) (Kernel, error) {
	e := d.Entry
	err := h.CheckKexec(e)
	if err == nil {
		err = h.CheckNothingStaged()
	}
	if err == nil && e.Linux == "" {
		err = fmt.Errorf("boot entry %s names no kernel", e.File)
	}
	if err != nil {
		return Kernel{}, err
	}
	line, err := h.expanded(kargs.Split(e.Options))
	if err != nil {
		return Kernel{}, fmt.Errorf("boot entry %s: %w", e.File, err)
	}
	k := Kernel{Image: h.Sysroot().BootPath(e.Linux), Cmdline: line.String()}
	for _, name := range e.Initrds {
		k.Initrd = h.Sysroot().BootPath(name)
	}
	return k, nil
}

// expanded returns the arguments of a boot entry that CheckKexec accepts, as GRUB would pass them now.
func (h *Host) expanded(line kargs.Line) (kargs.Line, error) {
	var expanded kargs.Line
	for _, arg := range line {
		if arg != kargs.IgnitionVariable {
			expanded = append(expanded, arg)
			continue
		}
		stamped, err := h.Has(ignitionStamp)
		if err != nil {
			return nil, err
		}
		if stamped {
			return nil, fmt.Errorf("there is %s: the boot loader shall have Ignition run", ignitionStamp)
		}
	}
	return expanded, nil
}

// CheckKexecInto is CheckKexec for the boot entry that the commit of a plan is going to write.
func (h *Host) CheckKexecInto(plan pivot.Plan) error {
	e, err := h.entryToCome(plan)
	if err == nil {
		err = h.CheckKexec(e)
	}
	return err
}

// CheckKexec returns an error if kexec cannot start what a boot entry names, on this machine. It is the one judgement,
// at the load and before a commit: an entry to come has what is known by then. Only what holds at the load alone is not
// judged: whether a kernel is named, what is staged, and what kargs.IgnitionVariable stands for, which changes when
// Ignition ends.
func (h *Host) CheckKexec(e ostree.BootEntry) error {
	if err := h.mayKexec(); err != nil {
		return err
	}
	if why := h.onlyByLoader(e); why != "" {
		return fmt.Errorf("boot entry %s %s", cmp.Or(e.File, "to come"), why)
	}
	return nil
}

// onlyByLoader returns what a boot entry has that only a boot loader can use; "" if there is nothing.
func (h *Host) onlyByLoader(e ostree.BootEntry) string {
	line := kargs.Split(e.Options)
	unknown := slices.IndexFunc(line, func(arg string) bool { return arg != kargs.IgnitionVariable && strings.Contains(arg, "$") })
	switch {
	case h.Sysroot().HasAboot(e):
		return "has aboot, which only a boot loader can use"
	case len(e.Board) > 0:
		return "has " + strings.Join(e.Board, " and ") + ", which only a boot loader can use"
	case len(e.Initrds) > 1:
		return "has more than one initramfs"
	case line.FIPS():
		return "has fips=1, with which the initramfs checks the kernel at the path that only the boot loader tells"
	case unknown >= 0:
		return "has " + line[unknown] + ", and only the boot loader knows what that stands for"
	}
	return ""
}

// mayKexec returns an error if kexec is disabled, or would bypass the checks of Secure Boot or
// lockdown.
func (h *Host) mayKexec() error {
	disabled, err := h.optional(loadDisabledPath)
	if err != nil {
		return err
	}
	if disabled == "1" {
		return errors.New("kexec is switched off (sysctl kernel.kexec_load_disabled)")
	}
	locked, err := h.locked()
	if err != nil {
		return err
	}
	firmware, err := secureboot.Read(h.Path(efiPath))
	if err != nil || !locked && !firmware.Enabled() {
		return err
	}
	checks, err := h.checksKernels(locked)
	if err != nil || checks {
		return err
	}
	why := map[bool]string{true: "under lockdown", false: "with Secure Boot"}[locked]
	return fmt.Errorf("%s only a kernel that is known to check signatures may start another, and this one is not", why)
}

// locked reports whether the running kernel is locked down.
func (h *Host) locked() (bool, error) {
	lockdown, err := h.optional(lockdownPath)
	if err != nil || lockdown != "" {
		return !strings.Contains(lockdown, "[none]"), err
	}
	there, err := h.Has(securityPath)
	if there && h.empty(securityPath) {
		err = fmt.Errorf("lockdown is not known: nothing is mounted on %s", securityPath)
	}
	return false, err
}

// empty reports whether a directory has no entries or cannot be read.
func (h *Host) empty(dir string) bool {
	entries, err := os.ReadDir(h.Path(dir))
	return err != nil || len(entries) == 0
}

// checksKernels reports whether the running kernel is known to start only signed kernels.
// kexec_file_load(2) rejects others under lockdown with CONFIG_KEXEC_SIG, and always with
// CONFIG_KEXEC_SIG_FORCE (kernel/kexec_file.c, kimage_validate_signature). The kernel's
// configuration is a file beside its modules.
func (h *Host) checksKernels(locked bool) (bool, error) {
	release, err := h.readLine("/proc/sys/kernel/osrelease")
	if err != nil {
		return false, err
	}
	config, err := h.optional("/usr/lib/modules/" + release + "/config")
	lines := strings.Split(config, "\n")
	return slices.Contains(lines, "CONFIG_KEXEC_SIG_FORCE=y") || locked && slices.Contains(lines, "CONFIG_KEXEC_SIG=y"), err
}

// kexec loads a kernel and asks systemd for an orderly kexec; otherwise it is like reboot. On
// failure it unloads the kernel, so that a later manual reboot is an ordinary one. Loading takes seconds, so
// afterwards still asks whether the kernel may be started.
func kexec(ctx context.Context, next Kernel, still func() error) error {
	if err := blocked(ctx); err != nil {
		return err
	}
	if err := next.load(); err != nil {
		return err
	}
	err := still()
	if err != nil {
		err = fault.New(fault.Unavailable, "cannot start the kernel that is loaded: %w", err) // the next try takes another way
	} else {
		err = startTarget(ctx, "kexec.target")
	}
	if err != nil {
		err = errors.Join(err, unload())
	}
	return err
}

// loadedPath is 1 if a kernel is loaded for kexec, other than for a crash.
const loadedPath = "/sys/kernel/kexec_loaded"

// forgetKexec unloads the kernel that is loaded for kexec, if any. A machine that does not let this program do that is not
// one where it has loaded the kernel.
func (h *Host) forgetKexec() error {
	loaded, err := h.optional(loadedPath)
	if err != nil || loaded != "1" {
		return err
	}
	if err := h.Unload(); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("cannot unload the kernel that is loaded for kexec: %w", err)
	}
	return nil
}

// unload unloads the kernel that is loaded for kexec.
func unload() error { return unix.KexecFileLoad(-1, -1, "", unix.KEXEC_FILE_UNLOAD) }

// load loads the kernel with kexec_file_load(2). OS images need not have kexec-tools, and their older system call never
// checks signatures.
func (k Kernel) load() error {
	kernel, err := os.Open(k.Image)
	if err != nil {
		return fmt.Errorf("cannot load the kernel: %w", err)
	}
	defer kernel.Close()
	initrd, flags := -1, unix.KEXEC_FILE_NO_INITRAMFS
	if k.Initrd != "" {
		f, err := os.Open(k.Initrd)
		if err != nil {
			return fmt.Errorf("cannot load the kernel: %w", err)
		}
		defer f.Close()
		initrd, flags = int(f.Fd()), 0
	}
	if err := unix.KexecFileLoad(int(kernel.Fd()), initrd, k.Cmdline, flags); err != nil {
		return fmt.Errorf("cannot load the kernel: the running one refuses %s: %w", k.Image, err)
	}
	return nil
}
