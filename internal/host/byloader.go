package host

import (
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
)

// grubDevice is the name of a file system for GRUB, as long as they are as a rule.
const grubDevice = "(hd0,gpt3)"

// byLoader returns what the boot loader puts before the arguments of a boot entry: the same as for the running system,
// since the next differs by little. If that was entered by kexec, past the boot loader, it is what GRUB would put
// there, if the machine has that.
func (h *Host) byLoader(running kargs.Line, entry ostree.BootEntry) (kargs.Line, error) {
	if before := running.ByLoader(kargs.Split(entry.Options)); len(before) > 0 || entry.Linux == "" || !grubConfigured(h.Path(bootPath)) {
		return before, nil
	}
	if opal, err := h.Has(opalPath); opal || err != nil {
		return nil, err
	}
	return kargs.Line{"BOOT_IMAGE=" + grubDevice + entry.Linux}, nil
}
