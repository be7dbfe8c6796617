package machine

import (
	"context"
	"fmt"
	"strings"

	"machine-pivot/internal/bootloader"
	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/rehearse"
	"machine-pivot/internal/secureboot"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// ReadFacts returns what a rehearsal asks of a machine.
func ReadFacts(ctx context.Context, h *host.Host) rehearse.Facts {
	known := map[string][]string{}
	return rehearse.Read(h.Root, func(alias string) []string {
		if _, asked := known[alias]; !asked {
			names, _ := h.Run(ctx, "modprobe", "-R", alias)
			known[alias] = strings.Fields(string(names))
		}
		return known[alias]
	}, func(numbers string) []string { return targets(ctx, h, numbers) })
}

// targets returns what maps a device of the device mapper: the third word of each line is the kind of a part. Without
// --noflush, a thin pool would write.
func targets(ctx context.Context, h *host.Host, numbers string) (kinds []string) {
	major, minor, _ := strings.Cut(numbers, ":")
	said, _ := h.Run(ctx, "dmsetup", "status", "--noflush", "--major", major, "--minor", minor)
	for line := range strings.Lines(string(said)) {
		if words := strings.Fields(line); len(words) > 2 {
			kinds = append(kinds, words[2])
		}
	}
	return kinds
}

// Facts are what images are judged by for a machine that is elsewhere. They have no secrets: of the kernel arguments only
// the names of some, of headers of LUKS only the registers of the TPM.
type Facts struct {
	Architecture string          `json:"architecture"`
	Arguments    kargs.Line      `json:"arguments"`
	CPUs         pinning.Machine `json:"cpus"`
	Rebuilt      bool            `json:"rebuilt"` // packages are layered, and so another initramfs may start than an image's
	rehearse.Facts
	// Firmware is nil, too, if it is not known what decides what starts on this machine.
	Firmware secureboot.Firmware `json:"firmware,omitempty"`
	Notes    []string            `json:"notes"` // what is not known
}

// FactsOf returns the facts of a machine that is booted from an ostree deployment.
func FactsOf(ctx context.Context, h *host.Host) (Facts, error) {
	f := Facts{Architecture: host.Architecture(), Arguments: kargs.Line{}, Notes: []string{}, Facts: ReadFacts(ctx, h)}
	state, err := h.Observe(ctx, pivot.Target{})
	if err != nil {
		return f, err
	}
	if f.CPUs, err = h.CPUs(); err != nil {
		f.Notes = append(f.Notes, fmt.Sprintf("the CPUs are not known: %v", err))
	}
	running, err := ostree.ParseChecksum(state.Booted.Commit)
	if err != nil {
		return f, err
	}
	if f.Firmware, err = bootloader.Known(h.Path("/sys/firmware/efi"), h.Sysroot().RepoPath(), running); err != nil {
		f.Notes = append(f.Notes, fmt.Sprintf("which kernels start is not known: %v", err))
	}
	f.Arguments, f.Rebuilt = rehearse.Asking(state.Booted.Options), state.Booted.Base != ""
	if f.Today, err = (rehearse.Stage{Repo: h.Sysroot().RepoPath()}).Today(running, f.Facts); err != nil {
		f.Notes = append(f.Notes, fmt.Sprintf("the running system's initramfs is not known: %v", err))
		f.Today = &rehearse.Initramfs{Modules: []string{}, Dracut: []string{}}
	}
	return f, nil
}
